"""All stages of one noisy run on both datasets of a neighbouring pair: exactly what the theorem adds up.

The server of the run broadcasts arbitrary prototypes. Then the run is replayed on both datasets: every noisy
statistic of a stage is replaced by that of the run, so that centres and radii differ only where they depend
on more than the released numbers. The shift of a stage is measured in units of the noise that it really adds.
"""

import dataclasses
import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float
from torch import Tensor

from tests.conftest import CLASSES, DIM, blobs, opened
from tests.unit.audits.audit_cases import ScaledNoise
from tests.unit.mechanisms.rapp_cases import make_rapp
from vpdr import Adjacency, ClassMeans, ReleaseContext, SeededNoise
from vpdr.audits.target import ZeroNoise
from vpdr.mechanisms import Rapp, ReleaseProjection
from vpdr.mechanisms import rapp as rapp_module
from vpdr.mechanisms.base import NoiseSource
from vpdr.mechanisms.rapp import NoisyStatistics
from vpdr.privacy.accountants import gaussian_precision
from vpdr.rng import Streams
from vpdr.types import Features, Prototypes

SAME, ANY, ADD_REMOVE = Adjacency
FAR = 1e6  # beyond any centre that is admitted: whatever the server says, the sample is at full length
MOMENT = 0.03  # of the budget; only a sample that comes or goes moves sums and second moment all the way
PROJECTIONS = {
    "plain": ReleaseProjection.identity(DIM),
    "random": ReleaseProjection.random(DIM, DIM // 2, Streams(0).generator("space")),
}
Scales = tuple[float, ...]
seeds, rows, labels_of = st.integers(0, 10**6), st.integers(0, 119), st.integers(0, CLASSES - 1)
lengths = st.one_of(st.sampled_from([0.0, 1.0, FAR]), st.floats(0, 30))
scales_of = st.lists(st.sampled_from([0.0, 1.0, 10.0, 1e3, 1e8, float("nan")]), min_size=5, max_size=5)
settings_of = st.fixed_dictionaries(
    {
        "rounds": st.sampled_from([1, 2, 5]),
        "epsilon": st.sampled_from([1.0, 8.0]),
        "per_class": st.sampled_from([1, 2]),
        "projection": st.sampled_from(sorted(PROJECTIONS)).map(PROJECTIONS.get),
    }
)


@dataclass(frozen=True)
class Units:
    """A noise source that draws one standard deviation everywhere."""

    reproducible: bool = True

    def rounded_gaussian(self, scales: Tensor) -> Tensor:
        return scales


@dataclass(frozen=True)
class Run:
    """The public side of a run: the context of each release, and the noisy statistics of all stages."""

    mechanism: Rapp
    contexts: list[ReleaseContext]
    outputs: list[NoisyStatistics]
    charged: float  # μ² of all events on the receipts

    @classmethod
    def of(cls, mechanism: Rapp, data: Features, scales: Scales, factor: float = 1.0) -> "Run":
        outputs: list[NoisyStatistics] = []
        original, charged, state, last_broadcast, contexts = (rapp_module.noisy_stage_statistics, 0.0, {}, None, [])

        def recorded(*arguments) -> NoisyStatistics:
            outputs.append(original(*arguments))
            return outputs[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rapp_module, "noisy_stage_statistics", recorded)
            for t in range(1, mechanism.stages.releases + 1):
                noise = ScaledNoise(SeededNoise(Streams(3).generator("release", round=t)), factor)
                at = ReleaseContext(encoder="public", round=t, noise=noise, last_broadcast=last_broadcast, state=state)
                release = opened(mechanism.release(data.vectors, data.labels, at))
                contexts.append(dataclasses.replace(at, noise=ScaledNoise(Units(), factor)))
                charged += gaussian_precision(release.receipt.events)
                state, last_broadcast = release.state, broadcast_far(t, scales[t - 1])
        return cls(mechanism, contexts, outputs, charged)

    def replay(self, data: Features) -> list[tuple[Tensor, Tensor]]:
        """Every stage on these data after the same releases: its clean statistics, and its noise."""
        original, past, outcomes = rapp_module.noisy_stage_statistics, iter(self.outputs), []

        def replayed(features, params, stage, noise: NoiseSource) -> NoisyStatistics:
            clean = numbers(original(features, params, stage, ZeroNoise()))
            outcomes.append((clean, (numbers(original(features, params, stage, noise)) - clean).abs()))
            return next(past)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rapp_module, "noisy_stage_statistics", replayed)
            for at in self.contexts:
                self.mechanism.release(data.vectors, data.labels, at)
        return outcomes

    def moved(self, first: Features, second: Features) -> float:
        """Σ over stages of the squared shift in units of the noise; infinite where its scale moves too."""
        total = 0.0
        for (one, noise), (two, other) in zip(self.replay(first), self.replay(second), strict=True):
            apart = (one - two).abs()
            if not torch.allclose(noise, other, rtol=1e-6):
                return math.inf
            total += float(torch.where(apart > 0, apart / noise, 0.0).square().sum())
        return total


def numbers(outputs: NoisyStatistics) -> Float[Tensor, " k"]:
    """Sums, counts and the second moment as one vector."""
    return torch.cat([outputs.rows.rows.flatten(), outputs.rows.sizes, outputs.second_moment[None]])


def broadcast_far(t: int, far: float) -> Prototypes:
    """A broadcast that has nothing to do with the uploads."""
    drawn = torch.randn(CLASSES, DIM, generator=Streams(t).generator("lie"))
    return Prototypes(far * drawn, torch.arange(CLASSES))


def neighbours(adjacency: Adjacency, row: int, new: Tensor, label: int) -> tuple[Features, Features]:
    """A dataset with a far sample, and the same with another sample in its place, or without it."""
    vectors, labels = blobs(2)
    vectors[row] = FAR * torch.nn.functional.one_hot(torch.tensor(0), DIM)
    first = Features(vectors, labels)
    if adjacency is ADD_REMOVE:
        others = torch.arange(len(labels)) != row
        return first, Features(vectors[others], labels[others])
    other, relabelled = vectors.clone(), labels.clone()
    other[row] = new
    if adjacency is ANY:
        relabelled[row] = label
    return first, Features(other, relabelled)


def opposite(adjacency: Adjacency, row: int = 3) -> tuple[Features, Features]:
    """The worst that one sample can do."""
    far = FAR * torch.nn.functional.one_hot(torch.tensor(0), DIM)
    return neighbours(adjacency, row, -far, row % CLASSES)


@settings(max_examples=40, deadline=None)
@given(
    adjacency=st.sampled_from(Adjacency),
    options=settings_of,
    scales=scales_of,
    seed=seeds,
    row=rows,
    label=labels_of,
    length=lengths,
)
def test_no_server_makes_a_run_reveal_more_than_is_charged(
    adjacency, options, scales, seed, row, label, length
) -> None:
    drawn = torch.randn(DIM, generator=Streams(seed).generator("new"))
    first, second = neighbours(adjacency, row, length * drawn / drawn.norm(), label)
    run = Run.of(make_rapp(adjacency=adjacency, **options), first, scales)
    assert run.moved(first, second) <= run.charged * (1 + 1e-6)


@settings(max_examples=20, deadline=None)
@given(adjacency=st.sampled_from(Adjacency), options=settings_of, scales=scales_of)
def test_the_worst_pair_differs_by_all_that_is_charged(adjacency, options, scales) -> None:
    first, second = opposite(adjacency)
    run = Run.of(make_rapp(adjacency=adjacency, **options), first, scales)
    least = 1.0 if adjacency is ADD_REMOVE else 1 - MOMENT
    assert (least - 0.01) * run.charged <= run.moved(first, second) <= run.charged * (1 + 1e-6)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_all_that_is_charged_is_the_budget(adjacency) -> None:
    mechanism = make_rapp(adjacency=adjacency)
    run = Run.of(mechanism, opposite(adjacency)[0], (0.0,) * 5)
    assert run.charged == pytest.approx(mechanism.noise_multiplier**-2)
    assert len(run.outputs) == 5


SCALES: dict[str, Scales] = {"quiet": (0.0,) * 5, "loud": (1.0, 1e3, 1e8, 0.0, 10.0)}


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_halved_noise_is_detected(adjacency, scales) -> None:
    first, second = opposite(adjacency)
    run = Run.of(make_rapp(adjacency=adjacency), first, scales, factor=0.5)
    assert run.moved(first, second) > 3.8 * run.charged


class Peeking(Rapp):
    """A wrong mechanism: its centres are the means of its own samples."""

    def release(self, vectors, labels, release_context):
        outcomes = ClassMeans()(vectors, labels)
        return Rapp.release(
            self,
            vectors,
            labels,
            dataclasses.replace(release_context, last_broadcast=Prototypes(outcomes.vectors, outcomes.labels)),
        )


@pytest.mark.parametrize("adjacency", Adjacency)
def test_centres_of_private_data_are_detected(adjacency) -> None:
    first, second = neighbours(adjacency, 3, -blobs(2)[0][3], 3)
    fields = {field.name: getattr(make_rapp(adjacency=adjacency), field.name) for field in dataclasses.fields(Rapp)}
    run = Run.of(Peeking(**fields), first, SCALES["quiet"])
    assert run.moved(first, second) > 3 * run.charged
    sound = Run.of(Rapp(**fields), first, SCALES["quiet"])
    assert sound.moved(first, second) <= sound.charged * (1 + 1e-6)
