"""`vpdr`: the commands, and how errors are reported. A command is imported when it is called."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from vpdr.registry import load_plugin
from vpdr.validation import VpdrError

# name -> where it is, and the first sentence of its help, so that `vpdr --help` imports no command
COMMANDS = {
    "run": ("run:run", "Run a configuration and write a record and a report; compare several seeds or methods."),
    "methods": ("settings:methods", "List methods, mechanisms, frameworks and regularisers."),
    "settings": ("settings:settings", "List the settings of a run: default, type or choices, and meaning."),
    "data": ("data:data", "List and download benchmarks, check them and data of your own, and draw splits."),
    "attack": (
        "audit:attack",
        "Attack the uploads of a finished run; writes attacks.json, figures and a new report.html.",
    ),
    "audit": ("audit:run_audit", "Certify a lower bound on ε of a mechanism or a run, and compare it with the claim."),
    "calibrate": (
        "budget:calibrate",
        "Compute the noise with which all rounds together satisfy (ε, δ), and the ε that it really spends.",
    ),
    "ledger": ("budget:ledger", "Show or amend what a client has spent."),
    "flower": ("flower:flower", "Run over Flower: write an app, simulate on this machine, or start a deployment."),
    "reproduce": (
        "reproduce:reproduce",
        "Reproduce a table or figure of the paper, and compare it with the published numbers.",
    ),
    "list": (
        "reproduce:list_results",
        "Show which reproductions are done, how many of their rows have numbers, and the state of the runs.",
    ),
    "results": ("reproduce:results", "Write one Markdown page from the summaries (ID.json) of many reproductions."),
    "doctor": ("audit:doctor", "Test that this installation does what the guarantees rely on."),
}

WITHOUT_PLUG_INS = {"ledger", "list", "results"}  # they read files alone


def load_command(name: str) -> click.Command:
    """Import a command of `COMMANDS`."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(f"vpdr.cli.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(rich_markup_mode="markdown", add_completion=False)
        found.command(name)(function)
    command = typer.main.get_command(found)
    command.name = name
    if isinstance(command, TyperGroup):
        command.suggest_commands = False
    if name not in WITHOUT_PLUG_INS:
        for each in command.commands.values() if isinstance(command, TyperGroup) else [command]:
            each.params.append(plugin_option())
    return command


def plugin_option() -> TyperOption:
    """`--plugin FILE.py`: eager, so that the names which a file registers are known to all other options."""
    return TyperOption(
        param_decls=["--plugin"],
        type=click.Path(),
        multiple=True,
        metavar="FILE.py",
        help="Load a Python file that registers a method of your own (docs/own_method.md). May be repeated.",
        is_eager=True,
        expose_value=False,
        callback=_load_plugins,
    )


def _load_plugins(context: click.Context, option: click.Parameter, files: Sequence[str]) -> None:  # noqa: ARG001
    for file in files:
        load_plugin(file)


class LazyGroup(TyperGroup):
    """A group that knows the names and the help of its commands, and imports the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, (_, help_line) in COMMANDS.items():
            self.add_command(TyperCommand(name, help=help_line), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name in COMMANDS else command, rest


app = typer.Typer(
    cls=LazyGroup,
    rich_markup_mode="markdown",
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click makes the same suggestion
)


@app.callback()
def commands(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Personalised federated learning with differentially private prototypes.

    Start with `vpdr run quickstart`, which needs no data and no network, then read the report.html that it
    names. `vpdr COMMAND --help` describes each command, `vpdr settings` each setting.
    """
    if version:
        sys.stdout.write(f"vpdr {metadata.version('vpdr')}\n")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, of the process if `arguments` is None, and return the exit code.

    An error of the user is one line on standard error and exit code 2.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=_spell_out_values(arguments), standalone_mode=False)
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


def _spell_out_values(arguments: Sequence[str]) -> list[str]:
    """`run --json=full` and `run --resume=DIR` in full: these flags may have a value, which click cannot express."""
    if arguments[:1] != ["run"]:
        return list(arguments)
    out: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name == "--json" and equals:
            out += ["--json", "--json-content", value]
        elif name == "--resume" and equals:
            out += ["--resume", value]
        else:
            out.append(argument)
    return out


def _discard_stdout() -> None:
    """Redirect standard output to nowhere, so that flushing it at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_error(message: str) -> int:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    return 2
