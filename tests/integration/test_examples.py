"""Every example runs as it stands."""

import runpy
from pathlib import Path

import pytest

import vpdr
from vpdr import METHODS
from vpdr.frameworks import FRAMEWORKS
from vpdr.mechanisms import MECHANISMS
from vpdr.registry import loaded_plugins, unload_plugin

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.fixture(autouse=True)
def _unregister():
    """What an example registers must not reach other tests."""
    yield
    for plugin in loaded_plugins():
        unload_plugin(plugin.path)
    for registry, name in ((FRAMEWORKS, "fedmedian"), (MECHANISMS, "subset"), (METHODS, "subset")):
        if name in registry:
            registry.unregister(name)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_prints_its_result(example: Path, capsys) -> None:
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_the_comparison_file_runs(tmp_path: Path) -> None:
    summary = vpdr.compare(str(EXAMPLES[0].with_name("comparison.toml")), tmp_path)
    assert list(summary.settings[""].methods) == ["local", "igpp", "subset", "median"]
    assert summary.baseline == "igpp"
    assert "plugins" in (tmp_path / "experiment.json").read_text()
