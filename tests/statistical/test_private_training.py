"""What an attacker can tell of private training: from the uploads of a run, and from the steps themselves."""

import dataclasses
from functools import partial

import pytest
import torch

from tests.unit.audits.audit_cases import make_config, make_target
from tests.unit.mechanisms.dpsgd_cases import client_and_broadcast, private
from vpdr.audits import audit
from vpdr.client import Samples
from vpdr.mechanisms import SystemNoise
from vpdr.mechanisms.dpsgd import per_sample_gradients
from vpdr.privacy import Adjacency, GaussianEvent, GuaranteeLevel

pytestmark = pytest.mark.statistics


@pytest.mark.parametrize(
    ("adjacency", "pair"),
    [
        (Adjacency.REPLACE_SAME_LABEL, "mislabelled"),
        (Adjacency.REPLACE_ONE, "antipodal"),
        (Adjacency.ADD_REMOVE, "absent"),
    ],
)
def test_an_audit_does_not_refute_it(adjacency, pair) -> None:
    audited = make_target(
        *("train.privacy=dpsgd", "benchmark.samples=96", "train.batch=48", "model.dim=8"),
        encoder="personal",
        epsilon=2.0,
        adjacency=str(adjacency),
    )
    result = audit(audited, config=make_config(30, pair=pair))
    assert result.claim.level is GuaranteeLevel.PROVED
    assert len(result.claim.events) == 4 + 2 * 3  # all releases, and the steps between them
    assert result.training_replayed
    assert not result.refuted


@pytest.mark.parametrize(("adjacency", "factor"), [("replace-one", 1.0), ("add-remove", 1.0), ("add-remove", 0.5)])
def test_a_step_is_as_distinguishable_as_its_event_says(adjacency, factor) -> None:
    """Two worlds that differ in a far sample: μ of a noisy sum is 1/multiplier at most, as its event says."""
    client, broadcast = client_and_broadcast(private(f"budget.adjacency={adjacency}", "release.summariser=sums"))
    config = dataclasses.replace(client.dpsgd_trainer.config, noise_multiplier=2.0)
    losses = partial(client.framework.losses, broadcast=broadcast)
    train, far = client.shard.train, torch.full((1, 12), 1e3)
    labels = [0, 1] if adjacency == "replace-one" else [0]
    worlds = [_with_first(far, label, train) for label in labels] + [train] * (2 - len(labels))
    with per_sample_gradients(client.dpsgd_trainer.model) as gradients:
        sums = [
            client.dpsgd_trainer.clipped_gradient_sum(each.frozen_features, each.labels, losses, gradients)
            for each in worlds
        ]
    shift = torch.cat([(a - b).flatten() for a, b in zip(*sums, strict=True)]).double()
    scores = []
    for world in sums:
        event = GaussianEvent(config.noise_multiplier * factor)
        runs = [config.noisy_mean(world, event, SystemNoise()) for _ in range(2000)]
        scores.append(torch.stack([torch.cat([part.flatten() for part in run]) for run in runs]) @ shift)
    mu = float((scores[0].mean() - scores[1].mean()) / torch.cat([s - s.mean() for s in scores]).std())
    claimed = 1 / config.noise_multiplier
    assert (mu < claimed + 0.08) == (factor == 1.0)
    if adjacency == "add-remove":  # one clipped gradient more or less is as much as the event allows for
        assert mu == pytest.approx(claimed / factor, abs=0.08)


def _with_first(vector: torch.Tensor, label: int, rest: Samples) -> Samples:
    return Samples(torch.cat([vector, rest.frozen_features]), torch.cat([torch.tensor([label]), rest.labels]))
