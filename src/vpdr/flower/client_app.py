"""The client as an app that Flower runs."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vpdr.errors import VpdrError
from vpdr.flower.home import Home
from vpdr.flower.node import answer, greet
from vpdr.flower.refusals import Code, Refused
from vpdr.flower.wire import answer_record, read_errand, read_greeting
from vpdr.privacy import BudgetExceeded

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.clientapp import ClientApp

HOMES = "VPDR_HOMES"  # where simulated clients live, by their partition; set by whoever owns the machine
REFUSED = 6  # flwr's MOD_FAILED_PRECONDITION


def client_app() -> "ClientApp":
    """A client for any Flower engine; its home comes from the node's own configuration.

    Guarantee: a reply is either an answer as `vpdr.flower.node.answer` gives it, or one code without data.
    """
    from flwr.app import ConfigRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()
    def hello(message: "Message", context: "Context") -> "Message":
        def named(home: Home) -> "RecordDict":
            name = greet(home, read_greeting(message.content))
            return RecordDict({"hello": ConfigRecord({"name": name})})

        return guarded(message, context, named)

    @app.train()
    def errand(message: "Message", context: "Context") -> "Message":
        return guarded(
            message, context, lambda home: answer_record(answer(home, read_errand(message.content)))
        )

    return app


def guarded(message: "Message", context: "Context", work: Callable[[Home], "RecordDict"]) -> "Message":
    """A reply with what `work` makes, or with a code; the reason for a code stays in the owner's folder."""
    from flwr.app import Error, Message

    home = None
    try:
        home = home_of(context)
        return Message(work(home), reply_to=message)
    except Exception as error:  # noqa: BLE001 - whatever went wrong may hold data, and must not travel
        code = code_of(error)
        if home is not None:
            noted(home, error)
        return Message(Error(code=REFUSED, reason=str(code)), reply_to=message)


def code_of(error: Exception) -> Code:
    """All that may be said of an error."""
    if isinstance(error, BudgetExceeded):
        return Code.BUDGET
    return error.code if isinstance(error, Refused) else Code.FAILED


def noted(home: Home, error: Exception) -> None:
    """Tell the owner, if that is still possible."""
    told = str(error) if isinstance(error, VpdrError) else f"{type(error).__name__}: {error}"
    try:
        home.note(told)
    except OSError:
        return  # a full disk must not turn a refusal into a traceback


def home_of(context: "Context") -> Home:
    """The client's folder: by the node's configuration, or by the machine's for simulated nodes."""
    folder = context.node_config.get("folder")
    if isinstance(folder, str) and folder:
        return Home(Path(folder))
    homes, part = os.environ.get(HOMES), context.node_config.get("partition-id")
    if homes and isinstance(part, int):
        return Home(Path(homes) / home_name(part))
    raise Refused(Code.NO_POLICY, "start the node with --node-config 'folder=\"...\"'")


def home_name(part: int) -> str:
    """The folder of a simulated client."""
    return f"node-{part:03d}"
