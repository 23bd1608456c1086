"""What a trained encoder makes of samples is a usual number, whatever became of the encoder."""

import pytest
import torch

from tests.engines.conftest import tiny
from vpdr.client import Client
from vpdr.client.usual import MOST, usual
from vpdr.engines.build import build

KINDS = {
    "personal": ("release.encoder=personal",),
    "accounted": ("release.encoder=personal", "train.privacy=dpsgd", "budget.epsilon=8"),
}


def client_of(kind: str) -> Client:
    return build(tiny(*KINDS[kind])).clients[0]


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -3e38], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_no_encoder_makes_a_release_fail_on_a_sample(kind: str, weight: float) -> None:
    client = client_of(kind)
    with torch.no_grad():
        for each in client.model.encoder.parameters():
            each.fill_(weight)
    shown = client.released_features(client.shard.train)
    assert float(shown.abs().max()) <= MOST
    upload = client.release(1)
    assert upload is not None
    assert bool(torch.isfinite(upload.vectors).all())


@pytest.mark.parametrize("kind", KINDS)
def test_usual_features_keep_every_bit(kind: str) -> None:
    client = client_of(kind)
    train = client.shard.train
    assert torch.equal(client.released_features(train), client.personal_features(train))
    signed = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 1e15, -1e15])
    assert torch.equal(usual(signed).view(torch.int32), signed.view(torch.int32))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_numbers_of_every_width_become_usual(kind: torch.dtype) -> None:
    strange = torch.tensor([float("nan"), float("inf"), -float("inf"), 2.0], dtype=kind)
    shown = usual(strange)
    assert bool(torch.isfinite(shown).all())
    assert float(shown.abs().max()) <= MOST * 1.01
    assert (shown[0], shown[3]) == (0, 2)
