"""`vpdr`: the commands, and how a mistake is told."""

import sys
from collections.abc import Sequence

import click
import typer

from vpdr.cli.calibrate import calibrate
from vpdr.cli.ledger import ledger
from vpdr.cli.run import run
from vpdr.errors import VpdrError

app = typer.Typer(
    help="Private prototypes for personalised federated learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(run)
app.command()(calibrate)
app.command()(ledger)


@app.callback()
def commands() -> None:
    """Private prototypes for personalised federated learning."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one line on stderr and exit code 2."""
    try:
        code = app(args=list(sys.argv[1:] if arguments is None else arguments), standalone_mode=False)
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
        sys.stderr.close()  # the reader has gone; there is nobody to tell
        return 0
    return code if isinstance(code, int) else 0


def _told(message: str) -> int:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    return 2
