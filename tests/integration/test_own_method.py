"""docs/own_method.md as it is written: its files, then its commands, in an empty directory."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "own_method.md"
SECONDS = 240  # on a busy machine; about 40 on an idle one


def test_the_document_works_as_it_is_written(tmp_path: Path) -> None:
    blocks = re.findall(r"```(python|toml|sh)\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    for kind, text in blocks:
        if kind != "sh":
            (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text)
    assert {each.name for each in tmp_path.iterdir()} == {"median.py", "sparse.py", "comparison.toml"}
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    outputs, begin = {}, time.monotonic()
    for command in [line for kind, text in blocks if kind == "sh" for line in text.splitlines()]:
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        outputs[command.split()[1]] = done.stdout
    assert time.monotonic() - begin < SECONDS
    assert re.search(r"igpp-median +FedProto with a median at the server\. Isotropic", outputs["methods"])
    assert "coordinates sent" in outputs["calibrate"]
    assert "audit of sparse on ClassMeans" in outputs["audit"]
    summary = json.loads((tmp_path / "runs" / "ours" / "summary.json").read_text())
    methods = summary["settings"][""]["methods"]
    assert list(methods) == ["local", "igpp", "igpp-median", "sparse", "sparse-16"]
    assert methods["sparse"]["privacy"]["level"] == "conditional"
    record = json.loads((tmp_path / "runs" / "ours" / "sparse" / "seed-1" / "record.json").read_text())
    assert {"plug-in median.py", "plug-in sparse.py"} <= set(record["versions"])
    report = (tmp_path / "runs" / "ours" / "report.html").read_text()
    assert "igpp-median" in report
    assert "sparse-16" in report
    (tmp_path / "sparse.py").write_text("raise RuntimeError('executed')\n")
    resume = ["bash", "-c", "vpdr run --resume runs/ours"]
    done = subprocess.run(resume, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"error: plug-in .*sparse.py was changed since this plan was stored .*\n", done.stderr)
