"""`vpdr`: the commands, and how errors are reported."""

import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import click
import typer

from vpdr.cli import audit, budget, data, flower, reproduce, run
from vpdr.validation import VpdrError

app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(run.run)
app.command()(audit.attack)
app.command("audit")(audit.run_audit)
app.command()(budget.calibrate)
app.add_typer(budget.ledger, name="ledger")
app.add_typer(data.data, name="data")
app.add_typer(flower.flower, name="flower")
app.command()(reproduce.reproduce)
app.command("list")(reproduce.list_results)
app.command()(reproduce.results)
app.command()(audit.doctor)


@app.callback()
def commands(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Personalised federated learning with differentially private prototypes.

    Start with `vpdr run quickstart`, which needs no data and no network, then read the report.html that it
    names. `vpdr COMMAND --help` describes each command.
    """
    if version:
        sys.stdout.write(f"vpdr {metadata.version('vpdr')}\n")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, of the process if `arguments` is None, and return the exit code.

    An error of the user is one line on standard error and exit code 2.
    """
    try:
        code = app(args=list(sys.argv[1:] if arguments is None else arguments), standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as help_text:
        sys.stdout.write(help_text.format_message() + "\n")
        return 0
    except click.ClickException as error:
        return _report_error(error.format_message())
    except VpdrError as error:
        return _report_error(str(error))
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("stopped\n")
        return 130
    except BrokenPipeError:
        _discard_stdout()
        return 0
    except OSError as error:
        _discard_stdout()
        return _report_error(f"cannot write the results: {error.strerror}")
    return code if isinstance(code, int) else 0


def _discard_stdout() -> None:
    """Redirect standard output to nowhere, so that flushing it at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_error(message: str) -> int:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    return 2
