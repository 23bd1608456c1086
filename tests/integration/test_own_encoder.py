"""Encoders of the user's own, from the command line and from Python, through whole runs."""

import csv
import json
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch
import transformers
from torch import nn

import vpdr
from tests.unit.data.format_files import write_class_directories
from tests.unit.encoder.conftest import save_tokeniser
from tests.unit.federation.conftest import timeless
from vpdr.cli import main
from vpdr.data import BENCHMARK_SPECS
from vpdr.encoder.zoo import BackboneSpec
from vpdr.federation import simulate

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
SMALL = (
    *("run.rounds=2", "train.epochs=1", "train.batch=16", "model.dim=16", "model.hidden=8"),
    *("mechanism.kind=vpp", "regulariser.kind=dcr"),
)
TOPICS = ("w1 w2 w3", "w10 w11 w12", "w20 w21 w22", "w30 w31 w32")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VPDR_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two domains of Office-Caltech-10 with four small images a class."""
    for domain in ("amazon", "dslr"):
        names = BENCHMARK_SPECS["office_caltech"].class_names
        write_class_directories(tmp_path / "data" / domain, names, each=4, suffix=".png")
    return tmp_path / "data"


@pytest.fixture
def news(tmp_path: Path) -> Path:
    (tmp_path / "news").mkdir()
    for name, count in (("train.csv", 48), ("test.csv", 16)):
        with (tmp_path / "news" / name).open("w", newline="") as file:
            rows = [(1 + n % 4, f"w{40 + n % 9}", TOPICS[n % 4]) for n in range(count)]
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    return tmp_path / "news"


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    with torch.random.fork_rng():
        model = transformers.ViTModel(transformers.ViTConfig(**SIZES, image_size=32, patch_size=8))
    model.save_pretrained(tmp_path / "vit")
    processor = transformers.ViTImageProcessorPil(size={"height": 32, "width": 32})
    processor.save_pretrained(tmp_path / "vit")
    return tmp_path / "vit"


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    with torch.random.fork_rng():
        model = transformers.BertModel(transformers.BertConfig(**SIZES, vocab_size=64, max_position_embeddings=40))
    model.save_pretrained(tmp_path / "bert")
    save_tokeniser(tmp_path / "bert")
    return tmp_path / "bert"


def run(out: Path, *settings: str) -> dict[str, Any]:
    options = [part for setting in (*SMALL, *settings) for part in ("--set", setting)]
    assert main(["run", "paper", *options, "--out", str(out)]) == 0
    record: dict[str, Any] = json.loads((out / "record.json").read_text())
    return record


@pytest.mark.parametrize("adapters", ["last", "blocks"])
def test_a_vision_encoder_of_transformers(tmp_path: Path, images: Path, vit: Path, adapters: str) -> None:
    settings = (
        "benchmark.kind=office_caltech",
        f"benchmark.root={images}",
        'benchmark.domains=["amazon", "dslr"]',
        "benchmark.train_fraction=0.6",
        f"model.backbone=hf:{vit}",
        f"model.adapters={adapters}",
    )
    first, second = (run(tmp_path / name, *settings) for name in ("first", "second"))
    assert first["plan"]["model"]["backbone"] == f"hf:{vit}"
    assert first["privacy"]["level"] == "conditional"
    assert timeless(first) == timeless(second)
    assert main(["run", str(tmp_path / "first" / "plan.toml"), "--out", str(tmp_path / "again")]) == 0


@pytest.mark.parametrize("adapters", ["last", "blocks"])
def test_a_text_encoder_of_transformers(tmp_path: Path, news: Path, bert: Path, adapters: str) -> None:
    record = run(
        tmp_path / "run",
        *("benchmark.kind=agnews", f"benchmark.root={news}", "benchmark.clients=2", "benchmark.concentration=100"),
        *(f"model.backbone=hf:{bert}", f"model.adapters={adapters}"),
    )
    assert len(record["rounds"]) == 2
    assert record["final"]["own"]["head"]["average"] is not None


def test_a_missing_encoder_is_one_line_and_exit_code_2(
    tmp_path: Path, news: Path, bert: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, root = "benchmark.kind=office_caltech", f"benchmark.root={images}"
    domains = 'benchmark.domains=["amazon", "dslr"]'
    for backbone, message in (
        (f"hf:{tmp_path / 'none'}", "expected the directory of a model"),
        (f"hf:{bert}", "benchmark office_caltech needs a backbone for images"),
        ("python:mine", "was given from Python"),
        ("hf:", "unknown backbone: 'hf:'"),
    ):
        options = [part for each in (kind, root, domains, f"model.backbone={backbone}") for part in ("--set", each)]
        assert main(["run", "paper", *options, "--out", str(tmp_path / "run")]) == 2
        errors = capsys.readouterr().err
        assert message in errors
        assert len(errors.strip().splitlines()) == 1


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, stride=4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU()) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return x.mean(dim=(2, 3))


def own_backbone() -> vpdr.Backbone:
    with torch.random.fork_rng():
        return vpdr.Backbone.from_module(Small(), name="small", pixels=32)


def config_for(images: Path, *settings: str) -> vpdr.RunConfig:
    return vpdr.load_config(
        "paper",
        *("benchmark.kind=office_caltech", f"benchmark.root={images}", 'benchmark.domains=["amazon", "dslr"]'),
        *("benchmark.train_fraction=0.6", *SMALL, *settings),
    )


@pytest.mark.parametrize("adapters", ["last", "blocks"])
def test_a_module_from_python(images: Path, adapters: str) -> None:
    federation = vpdr.build(config_for(images, f"model.adapters={adapters}"), backbone=own_backbone())
    assert federation.config.model.backbone == "python:small"
    states = [client.model.encoder.state_dict() for client in federation.clients]
    assert all(key.startswith(("adapter.", "adapters.")) for state in states for key in state)
    assert simulate(federation).rounds_done == 2
    text = json.dumps(federation.config.to_dict())
    with pytest.raises(vpdr.InvalidInput, match="python:small was given from Python"):
        vpdr.build(vpdr.RunConfig.from_dict(json.loads(text)))


def test_the_configs_size_of_images_counts_for_a_module(images: Path) -> None:
    federation = vpdr.build(config_for(images, "benchmark.pixels=64"), backbone=own_backbone())
    setup = federation.client_setups[federation.clients[0].id]
    assert setup.frozen_encoder is not None
    assert setup.frozen_encoder.backbone.pixels == 64


def test_a_registered_module_is_a_backbone_of_every_command(images: Path, tmp_path: Path) -> None:
    vpdr.BACKBONES.register("small", BackboneSpec.of(own_backbone()))
    try:
        record = vpdr.run(config_for(images, "model.backbone=small"), tmp_path / "run")
        assert record.plan["model"]["backbone"] == "small"
    finally:
        vpdr.BACKBONES.unregister("small")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("model.weights=random",), "leave out model.family and model.weights"),
        (("model.family=Lite3",), "leave out model.family and model.weights"),
        (("benchmark.kind=synthetic",), "benchmark synthetic has no samples for a backbone"),
    ],
)
def test_settings_that_a_module_replaces_are_refused(images: Path, settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(vpdr.InvalidInput, match=message):
        vpdr.build(vpdr.load_config("paper", *settings), backbone=own_backbone())


def test_a_bare_module_is_refused(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(jaxtyping.config.__dict__, "jaxtyping_disable", True)  # users have no checks of types
    with pytest.raises(vpdr.InvalidInput, match=r"expected a vpdr\.Backbone, got a Small"):
        vpdr.build(config_for(images), backbone=Small())  # type: ignore[arg-type]
