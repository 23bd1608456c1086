"""What leaves a client: always the same shape, whoever it is and whatever it hears."""

import pytest
import torch

from tests.conftest import BUDGET, CLASSES, DIM, blobs, elliptical
from tests.rapp.rapp_cases import anchors, made, occasion
from vpdr import Adjacency, Budget, Ledger
from vpdr.errors import InvalidInput
from vpdr.mechanisms import Geometry
from vpdr.mechanisms.rapp import release_dim
from vpdr.mechanisms.rapp.seen import Seen, read_counts
from vpdr.privacy.terms import Counts, EncoderKind, Level
from vpdr.prototypes import ClassMeans
from vpdr.rng import Streams
from vpdr.types import Prototypes

NOBODY = (torch.zeros(0, DIM), torch.zeros(0, dtype=torch.int64))
CLIENTS = {
    "nobody": NOBODY,
    "one sample": (torch.ones(1, DIM), torch.tensor([2])),
    "one class": (blobs(1)[0], torch.zeros(120, dtype=torch.int64)),
    "huge": (blobs(1)[0].double() * 1e305, blobs(1)[1]),
    "ordinary": blobs(1),
}


SPACES = {
    "plain": Geometry.plain(DIM),
    "subspace": Geometry.random(DIM, 7, Streams(0).draw("space")),
    "elliptical": elliptical(),
    "elliptical subspace": elliptical(reached=20, kept=7),
}


@pytest.mark.parametrize("per_class", [1, 3])
@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("who", CLIENTS)
@pytest.mark.parametrize("space", SPACES)
def test_the_upload_has_one_shape(who, adjacency, per_class, space) -> None:
    mechanism = made(adjacency=adjacency, per_class=per_class, geometry=SPACES[space])
    memory, heard = {}, None
    for t in range(1, 6):
        release = mechanism.release(*CLIENTS[who], occasion(t, memory=memory, heard=heard))
        upload, memory, heard = release.prototypes, release.memory, release.prototypes
        assert upload.vectors.shape == (CLASSES * per_class, DIM)
        assert upload.vectors.dtype is upload.variances.dtype is torch.float32
        assert upload.vectors.isfinite().all()
        assert (upload.variances > 0).all()
        assert upload.labels.tolist() == [c for c in range(CLASSES) for _ in range(per_class)]
        assert all(isinstance(kept, torch.Tensor) for kept in memory.values())


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 50.0])
@pytest.mark.parametrize("radius", [1e-12, 1e-3, 1e3, 1e12])
@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("who", CLIENTS)
def test_no_declared_clip_norm_makes_a_release_fail(who, adjacency, radius, epsilon) -> None:
    """With all stages in one release the later ones build on numbers that the server has not heard yet."""
    for per_class in (1, 2):
        mechanism = made(1, epsilon, clip_norm=radius, adjacency=adjacency, per_class=per_class)
        upload = mechanism.release(*CLIENTS[who], occasion(heard=anchors(0, 1e30))).prototypes
        assert upload.vectors.isfinite().all()
        assert upload.variances.isfinite().all()


HOSTILE = {
    "NaN": Prototypes(torch.full((CLASSES, DIM), torch.nan), torch.arange(CLASSES)),
    "infinity": Prototypes(torch.full((CLASSES, DIM), torch.inf), torch.arange(CLASSES)),
    "far away": anchors(0, 1e30),
    "largest floats": Prototypes(torch.full((CLASSES, DIM), 3e38), torch.arange(CLASSES)),
    "another dimension": Prototypes(torch.ones(CLASSES, DIM + 1), torch.arange(CLASSES)),
    "unknown classes": Prototypes(torch.ones(2, DIM), torch.tensor([-1, 99])),
    "nothing": Prototypes(torch.ones(0, DIM), torch.zeros(0, dtype=torch.int64)),
    "one class": Prototypes(torch.ones(1, DIM), torch.tensor([1])),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_server_changes_neither_shape_nor_cost(what) -> None:
    mechanism, ledger, memory = made(adjacency="replace-one"), Ledger(client="a", budget=BUDGET), {}
    ledger.adjacency = Adjacency.REPLACE_ONE
    usual = [mechanism.release(*blobs(1), occasion(t)).receipt for t in (1,)]
    for t in range(1, 6):
        release = mechanism.release(*blobs(1), occasion(t, memory=memory, heard=HOSTILE[what]))
        release.charged_to(ledger, round=t)
        memory = release.memory
        assert release.prototypes.vectors.isfinite().all()
        assert t > 1 or release.receipt == usual[0]
    assert ledger.spent <= BUDGET.epsilon


def all_stages(mechanism, vectors, labels, heard=None):
    memory = {}
    for t in range(1, 6):
        release = mechanism.release(vectors, labels, occasion(t, memory=memory, heard=heard))
        memory = release.memory
    return release


def test_with_little_noise_it_is_the_class_mean() -> None:
    vectors, labels = blobs(1, 2000)
    clean = ClassMeans()(vectors.double(), labels).vectors
    for adjacency in Adjacency:
        told = all_stages(made(epsilon=1000.0, adjacency=adjacency, clip_norm=20.0), vectors, labels)
        error = (told.prototypes.vectors - clean).square().sum(1).mean()
        assert error < 1e-3 * (clean - clean.mean(0)).square().sum(1).mean()


def test_published_variances_are_the_noise() -> None:
    """Over many runs the error has the variance that was published, once clipping does not matter."""
    vectors, labels = blobs(1, 400)
    clean = ClassMeans()(vectors.double(), labels).vectors
    ratios = []
    for seed in range(40):
        mechanism = made(rounds=1, epsilon=4.0, clip_norm=40.0, shares=(1.0,))
        told = mechanism.release(vectors, labels, occasion(seed=seed)).prototypes
        ratios.append(float(((told.vectors - clean).square().mean(1) / told.variances).mean()))
    assert 0.9 < sum(ratios) / len(ratios) < 1.1


def test_stages_beat_one_release_of_everything() -> None:
    vectors, labels = blobs(1, 2000)
    vectors = vectors + 20  # far from the origin: what recentring is for
    clean = ClassMeans()(vectors.double(), labels).vectors

    def error(shares: tuple[float, ...]) -> float:
        # without a broadcast: centres come from the client's own stages, all in one release
        mechanism = made(rounds=1, epsilon=4.0, clip_norm=120.0, shares=shares)
        told = mechanism.release(vectors, labels, occasion()).prototypes
        return float((told.vectors - clean).square().mean())

    assert error((0.05, 0.10, 0.15, 0.30, 0.40)) < 0.2 * error((1.0,))


def test_a_wrong_clip_norm_is_found_out() -> None:
    vectors, labels = blobs(1, 2000)
    for guess in (8.0, 17.0, 34.0):  # a feature is about 17 long, and about 5.7 from its class mean
        told = all_stages(made(epsilon=8.0, clip_norm=guess), vectors, labels)
        assert told.diagnostics["radius"] == pytest.approx(DIM**0.5, rel=0.4)


def test_counts_below_their_noise_are_read_as_their_noise() -> None:
    seen = Seen.nothing(4, 2, 1.0)
    known = Seen.recalled({**seen.memory(), "counts": torch.tensor([-30.0, 0.0, 50.0, 60.0]) / 25})
    known = Seen.recalled({**known.memory(), "counted": torch.tensor(1 / 25, dtype=torch.float64)})
    counts = read_counts(known, 80, hidden=True)
    assert counts.min() == 5  # √25
    assert counts.max() < 60  # towards the mean
    assert read_counts(known, 80, hidden=False).round().tolist() == [1, 1, 50, 60]


def test_the_terms_say_what_is_private() -> None:
    for adjacency, per_class, counts in (
        ("replace-same-label", 1, Counts.PUBLIC),
        ("replace-same-label", 2, Counts.PRIVATE),
        ("replace-one", 1, Counts.PRIVATE),
        ("add-remove", 1, Counts.PRIVATE),
    ):
        mechanism = made(adjacency=adjacency, per_class=per_class)
        assert mechanism.release(*blobs(1), occasion()).receipt.terms.counts is counts
    personal = occasion()
    object.__setattr__(personal, "encoder", EncoderKind.PERSONAL)
    assert made().release(*blobs(1), personal).receipt.level is Level.CONDITIONAL


def test_features_of_another_dimension_are_refused() -> None:
    with pytest.raises(InvalidInput, match=f"expected features of {DIM} dimensions, got 3"):
        made().release(torch.ones(4, 3), torch.arange(4), occasion())


def test_the_dimension_of_a_release_follows_from_public_numbers() -> None:
    assert release_dim(512, Budget(1.0, 1e-5), 0) == 512
    assert release_dim(512, Budget(1.0, 1e-5), 20) == 64
    assert 64 < release_dim(512, Budget(1.0, 1e-5), 80) < 512
    assert release_dim(512, Budget(1.0, 1e-5), 200) == 512
    assert release_dim(512, Budget(8.0, 1e-5), 20) > release_dim(512, Budget(1.0, 1e-5), 20)
    assert release_dim(16, Budget(1.0, 1e-5), 5) == 16


def test_geometries_are_what_they_say() -> None:
    rng = Streams(0).draw("space")
    plain, narrow = Geometry.plain(DIM), Geometry.random(DIM, 5, rng)
    vectors = blobs(1)[0].double()
    assert plain.into(vectors) is vectors
    torch.testing.assert_close(narrow.outward @ narrow.inward, torch.eye(5, dtype=torch.float64))
    once = narrow.back(narrow.into(vectors))
    torch.testing.assert_close(narrow.back(narrow.into(once)), once, atol=1e-5, rtol=1e-5)
    assert (plain.shrinks, plain.spread) == (1, 1)
    assert narrow.shrinks**2 == pytest.approx(narrow.spread) == pytest.approx(5 / DIM)
    with pytest.raises(InvalidInput, match="can keep 1 to 32"):
        Geometry.random(DIM, 33, rng)


def test_several_centres_find_several_modes() -> None:
    streams = Streams(4)
    modes = 6 * torch.randn(CLASSES, 2, DIM, generator=streams.draw("modes"))
    labels = torch.arange(4000) % CLASSES
    which = torch.arange(4000) // 4 % 2
    vectors = modes[labels, which] + torch.randn(4000, DIM, generator=streams.draw("spread"))

    def left(per_class: int) -> float:
        mechanism = made(rounds=8, epsilon=8.0, clip_norm=35.0, per_class=per_class, shares=(1.0,) * 8)
        memory = {}
        for t in range(1, 9):
            release = mechanism.release(vectors, labels, occasion(t, memory=memory))
            memory = release.memory
        centres = release.prototypes.vectors.reshape(CLASSES, per_class, DIM)[labels]
        return float((vectors[:, None] - centres).square().sum(2).min(1).values.mean())

    assert left(2) < 0.5 * left(1)
