"""Every kind of the user's own data end to end: VPDR and strict, by the command line and over Flower."""

from dataclasses import replace

import pytest

from tests.unit.data.own_files import write_features, write_folder, write_hugging_face, write_texts
from tests.unit.flower.conftest import without_exchange
from vpdr import load_config
from vpdr.cli import main
from vpdr.flower.simulation import simulate_in_process
from vpdr.records import read_record

SMALL = ("run.rounds=2", "train.epochs=1", "train.batch=16", "model.dim=6", "model.hidden=8", "model.width=4")
VPDR = ("paper",)  # mechanism vpp with regulariser dcr
IMAGES = ("model.weights=random", "benchmark.pixels=32")
TEXTS = ("model.backbone=minilm", "model.weights=random")
PUBLIC = ("benchmark.encoder=public",)
SOURCES = {
    "folder": ("folder", write_folder, "photos", IMAGES),
    "features npz": ("features", write_features, "f.npz", PUBLIC),
    "features csv": ("features", write_features, "f.csv", PUBLIC),
    "features parquet": ("features", write_features, "f.parquet", PUBLIC),
    "texts csv": ("texts", write_texts, "t.csv", TEXTS),
    "texts jsonl": ("texts", write_texts, "t.jsonl", TEXTS),
    "hf images": ("hf", lambda path: write_hugging_face(path, "image"), "saved", IMAGES),
    "hf texts": ("hf", lambda path: write_hugging_face(path, "text"), "saved", TEXTS),
    "hf features": ("hf", lambda path: write_hugging_face(path, "features"), "saved", PUBLIC),
}


@pytest.fixture(autouse=True)
def _skip_fsync(monkeypatch):
    """No test here simulates a power cut, so no file has to be flushed to disk."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.mark.parametrize("method", [VPDR, ("strict",)], ids=["vpdr", "strict"])
@pytest.mark.parametrize("name", SOURCES)
def test_own_data_by_the_command_line_and_over_flower(tmp_path, name, method):
    kind, write, file, settings = SOURCES[name]
    path = write(tmp_path / file)
    preset, *changes = (*method, *SMALL, *settings)
    options = [word for change in changes for word in ("--set", change)]
    command = ["run", preset, "--data", f"{kind}={path}", *options, "--out", str(tmp_path / "run"), "--quiet"]
    assert main(command) == 0
    record = read_record(tmp_path / "run" / "record.json")
    assert record.clients == ("north", "south")
    assert record.privacy.level == ("proved" if preset == "strict" else "conditional")
    names = ("cat", "dog") if kind == "folder" else ("sport", "business") if kind == "hf" else ("business", "sport")
    assert record.data is not None
    assert record.data.class_names == names
    declared = [line for line in record.privacy.not_covered if "declaration" in line]
    assert bool(declared) == ("benchmark.encoder=public" in settings)
    config = load_config(preset, *changes, data={kind: path})
    over_flower = simulate_in_process(config, tmp_path / "flower")
    assert without_exchange(over_flower) == without_exchange(replace(record, data=None))
