"""What the README shows, run literally."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[2]
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
LABELS = np.arange(400) % 10
FEATURES = np.random.default_rng(0).normal(size=(400, 512))


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_snippets_run_and_say_what_they_promise(snippet, kind) -> None:
    arrays = {"features": FEATURES, "labels": LABELS}
    names = arrays if kind == "numpy" else {name: torch.from_numpy(a) for name, a in arrays.items()}
    exec(compile(snippet, "README.md", "exec"), names)
    promised = re.search(r'receipt\.level\s+# "(\w+)', snippet)
    assert promised is not None
    assert names["release"].receipt.level == promised.group(1)
    assert names["release"].prototypes.vectors.shape == (10, 512)


def test_the_example_runs_and_ends_with_a_refusal(capsys) -> None:
    runpy.run_path(str(ROOT / "examples" / "plain_arrays.py"))
    told = capsys.readouterr().out
    assert told.count("round ") == 4
    assert "epsilon would reach" in told


def test_every_file_that_the_documents_link_exists() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
