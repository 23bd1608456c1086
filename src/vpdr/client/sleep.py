"""A client between two rounds: what is put away, and how it goes on."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vpdr.types import Prototypes

if TYPE_CHECKING:
    from vpdr.client.client import Client


def packed(client: "Client") -> dict[str, Any]:
    """Models, optimiser, ledger, and what was last sent and heard, as tensors and plain data."""
    return {
        "encoder": client.model.encoder.state_dict(),
        "head": client.model.head.state_dict(),
        "guide": client.guide.state_dict(),
        "optimiser": client.optimiser.state_dict(),
        "trainer": client.trainer.state() if client.trainer else None,
        "ledger": client.ledger.state_dict(),
        "sent": None if client.sent is None else client.sent.arrays(),
        "heard": None if client.heard is None else client.framework.pack(client.heard),
        "kept": dict(client.kept),
        "diagnosis": dict(client.diagnosis),
    }


def woken(client: "Client", state: Mapping[str, Any]) -> None:
    """The inverse; the ledger comes first, since it refuses a state that lacks a release which was made."""
    client.ledger.load_state_dict(state["ledger"])
    client.encoding.forget()
    client.model.encoder.load_state_dict(state["encoder"])
    client.model.head.load_state_dict(state["head"])
    client.guide.load_state_dict(state["guide"])
    client.optimiser.load_state_dict(state["optimiser"])
    if client.trainer:
        client.trainer.resume(state["trainer"])
    client.sent = None if state["sent"] is None else Prototypes.from_arrays(state["sent"])
    client.heard = None if state["heard"] is None else client.framework.unpack(state["heard"])
    client.kept = dict(state["kept"])
    client.diagnosis = dict(state["diagnosis"])
