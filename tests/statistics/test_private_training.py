"""What an attacker can tell of private training: from the uploads of a run, and from the steps themselves."""

import dataclasses
from functools import partial

import pytest
import torch

from tests.audits.audit_cases import effort, subject
from tests.dpsgd.private_cases import answered, private
from vpdr.audits import audit
from vpdr.client import Samples
from vpdr.client.by_sample import by_sample
from vpdr.mechanisms import SystemNoise
from vpdr.privacy import Adjacency, Gaussian, Level

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
    audited = subject(
        *("train.privacy=dpsgd", "benchmark.samples=96", "train.batch=48", "model.dim=8"),
        encoder="personal",
        epsilon=2.0,
        adjacency=str(adjacency),
    )
    found = audit(audited, effort=effort(30, pair=pair))
    assert found.claim.level is Level.PROVED
    assert len(found.claim.events) == 4 + 2 * 3  # all releases, and the steps between them
    assert found.replayed
    assert not found.refuted


@pytest.mark.parametrize(
    ("adjacency", "factor"), [("replace-one", 1.0), ("add-remove", 1.0), ("add-remove", 0.5)]
)
def test_a_step_is_told_apart_as_well_as_it_says_and_no_better(adjacency, factor) -> None:
    """Two worlds that differ in a far sample: μ of a noisy sum is 1/multiplier at most, as its event says."""
    client, broadcast = answered(private(f"budget.adjacency={adjacency}", "release.summariser=sums"))
    plan = dataclasses.replace(client.trainer.plan, multiplier=2.0)
    losses = partial(client.framework.losses, broadcast=broadcast)
    train, far = client.shard.train, torch.full((1, 12), 1e3)
    labels = [0, 1] if adjacency == "replace-one" else [0]
    worlds = [_with_first(far, label, train) for label in labels] + [train] * (2 - len(labels))
    with by_sample(client.trainer.model) as gradients:
        sums = [client.trainer.summed(each, losses, gradients) for each in worlds]
    shift = torch.cat([(a - b).flatten() for a, b in zip(*sums, strict=True)])
    scores = []
    for world in sums:
        event = Gaussian(plan.multiplier * factor)
        runs = [plan.noisy_mean(world, event, SystemNoise()) for _ in range(2000)]
        scores.append(torch.stack([torch.cat([part.flatten() for part in run]) for run in runs]) @ shift)
    mu = float((scores[0].mean() - scores[1].mean()) / torch.cat([s - s.mean() for s in scores]).std())
    claimed = 1 / plan.multiplier
    assert (mu < claimed + 0.08) == (factor == 1.0)
    if adjacency == "add-remove":  # one clipped gradient more or less is as much as the event allows for
        assert mu == pytest.approx(claimed / factor, abs=0.08)


def _with_first(vector: torch.Tensor, label: int, rest: Samples) -> Samples:
    return Samples(torch.cat([vector, rest.public]), torch.cat([torch.tensor([label]), rest.labels]))
