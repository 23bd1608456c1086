"""`vpdr settings` and `vpdr methods`: what can be set, and what can be chosen."""

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from vpdr.cli.output import console, print_json
from vpdr.config import load, rules
from vpdr.config.config import SECTION_NAMES, RunConfig, SettingInfo, all_settings
from vpdr.config.methods import METHODS, describe_method, describe_plug_in
from vpdr.report.tables import Table
from vpdr.validation import check_known

JsonOption = Annotated[bool, typer.Option("--json", help="Print the list as one JSON object.")]


def settings(
    section: Annotated[
        str | None, typer.Argument(metavar="[SECTION]", help="Only this section, such as budget; all if not given.")
    ] = None,
    as_json: JsonOption = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/settings.md.")] = False,
) -> None:
    """List the settings of a run: default, type or choices, and meaning.

    The default is that of preset paper. Any of them can be given with --set SECTION.KEY=VALUE or in a plan
    file. Exit codes: 0 done, 2 wrong input.
    """
    check_known("section", [] if section is None else [section], SECTION_NAMES)
    listed = [each for each in all_settings() if section in (None, each.section)]
    defaults = load.load_experiment("paper").method_configs[0].config
    if as_json:
        print_json({"settings": [_setting_data(each, defaults) for each in listed]})
    elif markdown:
        console.print(settings_page(), end="", soft_wrap=True)
    else:
        for name in dict.fromkeys(each.section for each in listed):
            rows = [_cells(each, defaults) for each in listed if each.section == name]
            title = f"[{name}]  {_section_meaning(name)}"
            columns = ["setting", "default", "type or choices", "meaning"]
            console.print(Table.from_texts(columns, rows, title=title).to_text())
            console.print()
        console.print("Options of plug-ins lie in tables of their name: framework.fedproto.weight=0.1.")


def settings_page() -> str:
    """docs/settings.md: every setting with default, choices and meaning."""
    defaults = load.load_experiment("paper").method_configs[0].config
    lines = ["# Settings", "Written by `vpdr settings --markdown`; defaults are those of preset `paper`.", ""]
    for name in SECTION_NAMES:
        lines += [f"## `{name}`", _section_meaning(name), ""]
        lines += ["| setting | default | type or choices | meaning |", "|---|---|---|---|"]
        for each in all_settings():
            if each.section == name:
                _, default, choices, meaning = (text.replace("|", "\\|") for text in _cells(each, defaults))
                lines.append(f"| `{each.path}` | {f'`{default}`' if default else ''} | {choices} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def _section_meaning(name: str) -> str:
    return (inspect.getdoc(type(getattr(RunConfig(), name))) or "").partition("\n")[0]


def _cells(setting: SettingInfo, defaults: RunConfig) -> list[str]:
    choices = ", ".join(str(each) for each in setting.choices if each != "")
    is_flag = setting.type == "true or false"
    default = getattr(getattr(defaults, setting.section), setting.name)
    text = str(default).lower() if is_flag else "" if default in ("", [], {}) else str(default)
    return [setting.name, text, setting.type if is_flag or not choices else choices, setting.meaning]


def _setting_data(setting: SettingInfo, defaults: RunConfig) -> dict[str, Any]:
    value = getattr(getattr(defaults, setting.section), setting.name)
    return {**asdict(setting), "path": setting.path, "default": value}


def methods(as_json: JsonOption = False) -> None:
    """List methods, mechanisms, frameworks and regularisers.

    A method is a framework, a mechanism and a regulariser with their settings: a name for --methods. Exit
    codes: 0 done, 2 wrong input.
    """
    described = {name: describe_method(name) for name in METHODS}
    lists = {"methods": described, **{f"{name}s": _plug_ins(table) for name, table in rules.PLUGINS.items()}}
    if as_json:
        print_json(lists)
        return
    for title, entries in lists.items():
        rows = [[name, meaning] for name, meaning in entries.items()]
        console.print(Table.from_texts([title, "meaning"], rows).to_text())
        console.print()
    console.print("Compare methods with `vpdr run paper --methods igpp,vpdr`; a single run of `paper` is vpdr.")


def _plug_ins(registry: Mapping[str, Any]) -> dict[str, str]:
    """The first sentence of each plug-in's docstring."""
    return {name: describe_plug_in(each) for name, each in registry.items()}
