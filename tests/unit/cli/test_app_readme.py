"""What the README shows, run literally."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[3]
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
LABELS = np.arange(400) % 10
FEATURES = np.random.default_rng(0).normal(size=(400, 512))


RELEASES = [snippet for snippet in SNIPPETS if "features, labels" in snippet]
RUNS = [snippet for snippet in SNIPPETS if snippet not in RELEASES]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("snippet", RELEASES, ids=range(len(RELEASES)))
def test_releases_have_the_stated_level(snippet, kind) -> None:
    arrays = {"features": FEATURES, "labels": LABELS}
    names = arrays if kind == "numpy" else {name: torch.from_numpy(a) for name, a in arrays.items()}
    exec(compile(snippet, "README.md", "exec"), names)
    stated = re.search(r'receipt\.level\s+# "(\w+)', snippet)
    assert stated is not None
    assert names["release"].receipt.level == stated.group(1)
    assert names["release"].prototypes.vectors.shape == (10, 512)


@pytest.mark.slow
@pytest.mark.parametrize("snippet", RUNS, ids=range(len(RUNS)))
def test_runs_leave_a_record_and_a_report(snippet, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(snippet, "README.md", "exec"), names)
    assert names["record"].schema == "vpdr-record"
    assert names["summary"].schema == "vpdr-summary"
    assert {path.parent.name for path in tmp_path.glob("runs/*/report.html")} == {"mine", "both"}


def test_the_example_runs_and_ends_with_a_refusal(capsys) -> None:
    runpy.run_path(str(ROOT / "examples" / "plain_arrays.py"))
    output = capsys.readouterr().out
    assert output.count("round ") == 4
    assert "epsilon would reach" in output


def test_every_file_that_the_documents_link_exists() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
