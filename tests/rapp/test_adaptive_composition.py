"""All stages of one noisy run, seen from both sides of a neighbouring pair: exactly what the theorem adds up.

The run hears a server that lies. Then it is played again on both datasets with its own past: everything that
a stage tells is replaced by what it told in the run, so that centres and radii may differ only where they
depend on more than that. How far a stage's outcome moves is measured in the noise that it really adds.
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

from tests.audits.audit_cases import Weaker
from tests.conftest import CLASSES, DIM, blobs, elliptical
from tests.rapp.rapp_cases import made
from vpdr import Adjacency, ClassMeans, Occasion, SeededNoise
from vpdr.audits.silence import Silence
from vpdr.mechanisms import Geometry, NoiseSource, Rapp
from vpdr.mechanisms.rapp import look as room
from vpdr.mechanisms.rapp.look import Outcome
from vpdr.privacy.events import gaussian_precision
from vpdr.rng import Streams
from vpdr.types import Features, Prototypes

SAME, ANY, COME_AND_GO = Adjacency
FAR = 1e6  # beyond any centre that is admitted: whatever the server says, the sample is at full length
MOMENT = 0.03  # of the budget; only a sample that comes or goes moves sums and second moment all the way
GEOMETRIES = {"plain": Geometry.plain(DIM), "elliptical": elliptical()}
Lies = tuple[float, ...]
seeds, rows, labels_of = st.integers(0, 10**6), st.integers(0, 119), st.integers(0, CLASSES - 1)
lengths = st.one_of(st.sampled_from([0.0, 1.0, FAR]), st.floats(0, 30))
lies_of = st.lists(st.sampled_from([0.0, 1.0, 10.0, 1e3, 1e8, float("nan")]), min_size=5, max_size=5)
settings_of = st.fixed_dictionaries(
    {
        "rounds": st.sampled_from([1, 2, 5]),
        "epsilon": st.sampled_from([1.0, 8.0]),
        "per_class": st.sampled_from([1, 2]),
        "geometry": st.sampled_from(sorted(GEOMETRIES)).map(GEOMETRIES.get),
    }
)


@dataclass(frozen=True)
class Units:
    """A noise source that draws one standard deviation everywhere."""

    reproducible: bool = True

    def normal(self, *shape: int) -> Float[Tensor, "..."]:
        return torch.ones(shape, dtype=torch.float64)


@dataclass(frozen=True)
class Run:
    """What was public of a run, release by release, and what all of its stages told."""

    mechanism: Rapp
    occasions: list[Occasion]
    told: list[Outcome]
    charged: float  # μ² of all events on the receipts

    @classmethod
    def of(cls, mechanism: Rapp, data: Features, lies: Lies, factor: float = 1.0) -> "Run":
        told: list[Outcome] = []
        right, charged, memory, heard, occasions = room.outcome, 0.0, {}, None, []

        def watched(*arguments) -> Outcome:
            told.append(right(*arguments))
            return told[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(room, "outcome", watched)
            for t in range(1, mechanism.stages.releases + 1):
                noise = Weaker(SeededNoise(Streams(3).draw("release", t=t)), factor)
                at = Occasion(encoder="public", round=t, noise=noise, heard=heard, memory=memory)
                release = mechanism.release(data.vectors, data.labels, at)
                occasions.append(dataclasses.replace(at, noise=Weaker(Units(), factor)))
                charged += gaussian_precision(release.receipt.events)
                memory, heard = release.memory, lie(t, lies[t - 1])
        return cls(mechanism, occasions, told, charged)

    def again(self, data: Features) -> list[tuple[Tensor, Tensor]]:
        """Every stage on these data, with the past of the run: what it tells without noise, and its noise."""
        right, past, found = room.outcome, iter(self.told), []

        def replayed(features, view, stage, noise: NoiseSource) -> Outcome:
            quiet = numbers(right(features, view, stage, Silence()))
            found.append((quiet, (numbers(right(features, view, stage, noise)) - quiet).abs()))
            return next(past)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(room, "outcome", replayed)
            for at in self.occasions:
                self.mechanism.release(data.vectors, data.labels, at)
        return found

    def moved(self, first: Features, second: Features) -> float:
        """Σ over stages of the squared shift in units of the noise; infinite where its scale moves too."""
        total = 0.0
        for (one, noise), (two, other) in zip(self.again(first), self.again(second), strict=True):
            apart = (one - two).abs()
            if not torch.allclose(noise, other, rtol=1e-6):
                return math.inf
            total += float(torch.where(apart > 0, apart / noise, 0.0).square().sum())
        return total


def numbers(told: Outcome) -> Float[Tensor, " k"]:
    """Sums, counts and the second moment as one vector."""
    return torch.cat([told.rows.rows.flatten(), told.rows.sizes, told.share[None]])


def lie(t: int, far: float) -> Prototypes:
    """Centres that the uploads have nothing to do with."""
    drawn = torch.randn(CLASSES, DIM, generator=Streams(t).draw("lie"))
    return Prototypes(far * drawn, torch.arange(CLASSES))


def neighbours(adjacency: Adjacency, row: int, new: Tensor, label: int) -> tuple[Features, Features]:
    """The crowd with a far sample, and the same with this one in its place, or with none."""
    vectors, labels = blobs(2)
    vectors[row] = FAR * torch.nn.functional.one_hot(torch.tensor(0), DIM)
    first = Features(vectors, labels)
    if adjacency is COME_AND_GO:
        kept = torch.arange(len(labels)) != row
        return first, Features(vectors[kept], labels[kept])
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
    wish=settings_of,
    lies=lies_of,
    seed=seeds,
    row=rows,
    label=labels_of,
    length=lengths,
)
def test_no_server_makes_a_run_tell_more_than_is_charged(
    adjacency, wish, lies, seed, row, label, length
) -> None:
    drawn = torch.randn(DIM, generator=Streams(seed).draw("new"))
    first, second = neighbours(adjacency, row, length * drawn / drawn.norm(), label)
    run = Run.of(made(adjacency=adjacency, **wish), first, lies)
    assert run.moved(first, second) <= run.charged * (1 + 1e-6)


@settings(max_examples=20, deadline=None)
@given(adjacency=st.sampled_from(Adjacency), wish=settings_of, lies=lies_of)
def test_the_worst_pair_is_told_apart_by_all_that_is_charged(adjacency, wish, lies) -> None:
    first, second = opposite(adjacency)
    run = Run.of(made(adjacency=adjacency, **wish), first, lies)
    least = 1.0 if adjacency is COME_AND_GO else 1 - MOMENT
    assert (least - 0.01) * run.charged <= run.moved(first, second) <= run.charged * (1 + 1e-6)


@pytest.mark.parametrize("adjacency", Adjacency)
def test_all_that_is_charged_is_the_budget(adjacency) -> None:
    mechanism = made(adjacency=adjacency)
    run = Run.of(mechanism, opposite(adjacency)[0], (0.0,) * 5)
    assert run.charged == pytest.approx(mechanism.noise_multiplier**-2)
    assert len(run.told) == 5


LIES: dict[str, Lies] = {"quiet": (0.0,) * 5, "loud": (1.0, 1e3, 1e8, 0.0, 10.0)}


@pytest.mark.parametrize("lies", LIES.values(), ids=LIES)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_halved_noise_is_noticed(adjacency, lies) -> None:
    first, second = opposite(adjacency)
    run = Run.of(made(adjacency=adjacency), first, lies, factor=0.5)
    assert run.moved(first, second) > 3.8 * run.charged


class Peeking(Rapp):
    """Looks from the means of its own samples instead of from what was released."""

    def release(self, vectors, labels, occasion):
        found = ClassMeans()(vectors, labels)
        return Rapp.release(
            self,
            vectors,
            labels,
            dataclasses.replace(occasion, heard=Prototypes(found.vectors, found.labels)),
        )


@pytest.mark.parametrize("adjacency", Adjacency)
def test_centres_of_private_data_are_noticed(adjacency) -> None:
    first, second = neighbours(adjacency, 3, -blobs(2)[0][3], 3)
    given = {field.name: getattr(made(adjacency=adjacency), field.name) for field in dataclasses.fields(Rapp)}
    run = Run.of(Peeking(**given), first, LIES["quiet"])
    assert run.moved(first, second) > 3 * run.charged
    sound = Run.of(Rapp(**given), first, LIES["quiet"])
    assert sound.moved(first, second) <= sound.charged * (1 + 1e-6)
