"""Released features are finite, whatever training did to the encoder."""

import pytest
import torch

from tests.unit.federation.conftest import tiny
from vpdr.client import Client
from vpdr.client.client import MAX_ABS_COORDINATE, sanitize
from vpdr.federation import build

KINDS = {
    "personal": ("release.encoder=personal",),
    "accounted": ("release.encoder=personal", "train.privacy=dpsgd", "budget.epsilon=8"),
}


def make_client(kind: str) -> Client:
    return build(tiny(*KINDS[kind])).clients[0]


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -3e38], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_no_encoder_makes_a_release_fail_on_a_sample(kind: str, weight: float) -> None:
    client = make_client(kind)
    with torch.no_grad():
        for each in client.model.encoder.parameters():
            each.fill_(weight)
    features = client.released_features(client.shard.train)
    assert float(features.abs().max()) <= MAX_ABS_COORDINATE
    upload = client.release(1)
    assert upload is not None
    assert bool(torch.isfinite(upload.vectors).all())


@pytest.mark.parametrize("kind", KINDS)
def test_finite_features_keep_every_bit(kind: str) -> None:
    client = make_client(kind)
    train = client.shard.train
    assert torch.equal(client.released_features(train), client.personal_features(train))
    signed = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 1e15, -1e15])
    assert torch.equal(sanitize(signed).view(torch.int32), signed.view(torch.int32))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_numbers_of_every_width_become_finite(kind: torch.dtype) -> None:
    invalid = torch.tensor([float("nan"), float("inf"), -float("inf"), 2.0], dtype=kind)
    features = sanitize(invalid)
    assert bool(torch.isfinite(features).all())
    assert float(features.abs().max()) <= MAX_ABS_COORDINATE * 1.01
    assert (features[0], features[3]) == (0, 2)
