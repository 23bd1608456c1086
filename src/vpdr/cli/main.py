"""`vpdr`: the commands, and how a mistake is told."""

import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import click
import typer

from vpdr.cli.attack import attack
from vpdr.cli.audit import run_audit
from vpdr.cli.calibrate import calibrate
from vpdr.cli.data import data
from vpdr.cli.doctor import doctor
from vpdr.cli.ledger import ledger
from vpdr.cli.list import list_results
from vpdr.cli.reproduce import reproduce
from vpdr.cli.reproduction_results import results
from vpdr.cli.run import run
from vpdr.errors import VpdrError

app = typer.Typer(
    help="Private prototypes for personalised federated learning.",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(run)
app.command()(attack)
app.command()(calibrate)
app.command()(ledger)
app.add_typer(data, name="data")
app.command()(reproduce)
app.command("list")(list_results)
app.command()(results)
app.command("audit")(run_audit)
app.command()(doctor)


@app.callback()
def commands(
    version: Annotated[bool, typer.Option("--version", help="Show the version.", is_eager=True)] = False,
) -> None:
    """Private prototypes for personalised federated learning."""
    if version:
        sys.stdout.write(f"vpdr {metadata.version('vpdr')}\n")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one line on stderr and exit code 2."""
    try:
        code = app(args=list(sys.argv[1:] if arguments is None else arguments), standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as shown:
        sys.stdout.write(shown.format_message() + "\n")
        return 0
    except click.ClickException as error:
        return _told(error.format_message())
    except VpdrError as error:
        return _told(str(error))
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("stopped\n")
        return 130
    except BrokenPipeError:
        _leave_quietly()
        return 0
    except OSError as error:
        _leave_quietly()
        return _told(f"cannot write the results: {error.strerror}")
    return code if isinstance(code, int) else 0


def _leave_quietly() -> None:
    """Nobody reads standard output any more, so nothing must be flushed into it at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _told(message: str) -> int:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    return 2
