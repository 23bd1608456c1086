"""Another package adds a backbone through the registry or an entry point."""

from dataclasses import replace
from importlib import metadata

import pytest

from tests.unit.encoder.conftest import full_batch, make_frozen_encoder, make_personal_encoder, random_images
from vpdr.encoder.zoo import BACKBONES, load_backbone
from vpdr.registry import Registry
from vpdr.validation import InvalidInput

RESNET18 = BACKBONES["resnet18"]
RESNET10 = replace(
    RESNET18,
    load=replace(RESNET18.load, settings={**RESNET18.load.settings, "depths": [1, 1, 1, 1]}),
    hub_repository="",
)


@pytest.fixture
def registered():
    yield BACKBONES.register("resnet10", RESNET10)
    BACKBONES.unregister("resnet10")


def test_a_registered_backbone_is_loaded_and_adapted(registered):
    backbone = load_backbone("resnet10", "random", pixels=32)
    frozen_encoder = make_frozen_encoder(backbone)
    personal = make_personal_encoder(frozen_encoder)
    assert list(personal.adapters) == ["0", "1", "2", "3"]
    public = frozen_encoder.projection(backbone.pooled_features(random_images()))
    assert personal(public, full_batch(backbone.make_inputs(random_images()))).shape == (2, 16)


def test_a_registered_name_is_refused_a_second_time(registered):
    with pytest.raises(InvalidInput, match="backbone 'resnet10' is registered already"):
        BACKBONES.register("resnet10", RESNET10)


def test_an_entry_point_adds_a_backbone(monkeypatch):
    point = metadata.EntryPoint("resnet10", f"{__name__}:RESNET10", BACKBONES.group)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == "vpdr.backbones" else [])
    assert Registry("backbone", dict(BACKBONES))["resnet10"] is RESNET10
