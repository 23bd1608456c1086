"""Every example runs as it stands."""

import runpy
from pathlib import Path

import pytest

from vpdr.frameworks import FRAMEWORKS
from vpdr.mechanisms import MECHANISMS

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.fixture(autouse=True)
def _unregister():
    """What an example registers must not reach other tests."""
    yield
    for registry, name in ((FRAMEWORKS, "fedmedian"), (MECHANISMS, "subset")):
        if name in registry:
            registry.unregister(name)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs_and_prints_its_result(example: Path, capsys) -> None:
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out.strip()
