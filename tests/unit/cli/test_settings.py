"""`vpdr settings` and `vpdr methods`, as a user types them."""

import json
from pathlib import Path

import pytest

from vpdr.cli import main
from vpdr.cli.settings import settings_page
from vpdr.config import rules
from vpdr.config.config import SECTION_NAMES, all_settings
from vpdr.config.methods import MEANINGS, builtin_methods

PAGE = Path(__file__).parents[3] / "docs" / "settings.md"


def test_every_setting_is_listed_with_its_meaning(capsys) -> None:
    assert main(["settings"]) == 0
    text = capsys.readouterr().out
    for each in all_settings():
        assert each.name in text
        assert each.meaning in text


def test_one_section(capsys) -> None:
    assert main(["settings", "budget"]) == 0
    text = capsys.readouterr().out
    assert "replace-one" in text
    assert "rounds" not in text
    assert main(["settings", "bugdet"]) == 2
    assert "did you mean 'budget'?" in capsys.readouterr().err


def test_settings_as_data(capsys) -> None:
    assert main(["settings", "--json"]) == 0
    listed = {each["path"]: each for each in json.loads(capsys.readouterr().out)["settings"]}
    assert {each["section"] for each in listed.values()} == set(SECTION_NAMES)
    assert listed["mechanism.kind"]["default"] == "vpp"  # of preset paper
    assert "igpp" in listed["mechanism.kind"]["choices"]
    assert "alpha" in listed["benchmark.concentration"]["synonyms"]


def test_the_page_of_settings_is_the_one_in_the_docs() -> None:
    """After a change of a setting: `vpdr settings --markdown > docs/settings.md`."""
    assert PAGE.read_text() == settings_page()


def test_methods_and_plug_ins_are_listed(capsys) -> None:
    assert main(["methods"]) == 0
    text = capsys.readouterr().out
    for registry in rules.PLUGINS.values():
        assert all(name in text for name in registry)
    assert main(["methods", "--json"]) == 0
    lists = json.loads(capsys.readouterr().out)
    assert lists.keys() == {"methods", "mechanisms", "frameworks", "regularisers"}
    assert all(meaning for entries in lists.values() for meaning in entries.values())


def test_every_built_in_method_has_a_meaning() -> None:
    assert MEANINGS.keys() == builtin_methods().keys()


@pytest.mark.parametrize("command", ["settings", "methods"])
def test_help(capsys, command) -> None:
    assert main([command, "--help"]) == 0
    assert "--json" in capsys.readouterr().out
