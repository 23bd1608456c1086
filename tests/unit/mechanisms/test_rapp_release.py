"""The upload of RAPP: the same shape for every client and every broadcast."""

import pytest
import torch

from tests.conftest import BUDGET, CLASSES, DIM, blobs, opened
from tests.unit.mechanisms.rapp_cases import anchors, make_rapp, release_context
from vpdr import Adjacency, Budget, Ledger
from vpdr.mechanisms import ReleaseProjection
from vpdr.mechanisms.rapp import RappState, default_release_dim, estimate_counts
from vpdr.privacy import EncoderKind, GuaranteeLevel
from vpdr.privacy.guarantee import CountVisibility
from vpdr.prototypes import ClassMeans
from vpdr.rng import Streams
from vpdr.types import Prototypes
from vpdr.validation import InvalidInput

NO_SAMPLE = (torch.zeros(0, DIM), torch.zeros(0, dtype=torch.int64))
CLIENTS = {
    "no sample": NO_SAMPLE,
    "one sample": (torch.ones(1, DIM), torch.tensor([2])),
    "one class": (blobs(1)[0], torch.zeros(120, dtype=torch.int64)),
    "huge": (blobs(1)[0].double() * 1e305, blobs(1)[1]),
    "ordinary": blobs(1),
}


PROJECTIONS = {
    "plain": ReleaseProjection.identity(DIM),
    "subspace": ReleaseProjection.random(DIM, 7, Streams(0).generator("space")),
    "wide subspace": ReleaseProjection.random(DIM, 20, Streams(0).generator("space")),
}


@pytest.mark.parametrize("per_class", [1, 3])
@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", PROJECTIONS)
def test_the_upload_has_one_shape(client, adjacency, per_class, name) -> None:
    mechanism = make_rapp(adjacency=adjacency, per_class=per_class, projection=PROJECTIONS[name])
    state, last_broadcast = {}, None
    for t in range(1, 6):
        context = release_context(t, state=state, last_broadcast=last_broadcast)
        release = opened(mechanism.release(*CLIENTS[client], context))
        upload, state, last_broadcast = release.prototypes, release.state, release.prototypes
        assert upload.vectors.shape == (CLASSES * per_class, DIM)
        assert upload.vectors.dtype is upload.variances.dtype is torch.float32
        assert upload.vectors.isfinite().all()
        assert (upload.variances > 0).all()
        assert upload.labels.tolist() == [c for c in range(CLASSES) for _ in range(per_class)]
        assert all(isinstance(value, torch.Tensor) for value in state.values())


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 50.0])
@pytest.mark.parametrize("radius", [1e-12, 1e-3, 1e3, 1e12])
@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("client", CLIENTS)
def test_no_declared_clip_norm_makes_a_release_fail(client, adjacency, radius, epsilon) -> None:
    """With all stages in one release the later ones build on numbers that have not been sent yet."""
    for per_class in (1, 2):
        mechanism = make_rapp(1, epsilon, clip_norm=radius, adjacency=adjacency, per_class=per_class)
        context = release_context(last_broadcast=anchors(0, 1e30))
        upload = opened(mechanism.release(*CLIENTS[client], context)).prototypes
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
    mechanism, ledger, state = make_rapp(adjacency="replace-one"), Ledger(client="a", budget=BUDGET), {}
    ledger.adjacency = Adjacency.REPLACE_ONE
    expected = [mechanism.release(*blobs(1), release_context(t)).receipt for t in (1,)]
    for t in range(1, 6):
        release = mechanism.release(*blobs(1), release_context(t, state=state, last_broadcast=HOSTILE[what]))
        release.charge_to(ledger, round=t)
        state = release.state
        assert release.prototypes.vectors.isfinite().all()
        assert t > 1 or release.receipt == expected[0]
    assert ledger.epsilon_spent <= BUDGET.epsilon


def all_stages(mechanism, vectors, labels, last_broadcast=None):
    state = {}
    for t in range(1, 6):
        context = release_context(t, state=state, last_broadcast=last_broadcast)
        release = opened(mechanism.release(vectors, labels, context))
        state = release.state
    return release


def test_with_little_noise_it_is_the_class_mean() -> None:
    vectors, labels = blobs(1, 2000)
    clean = ClassMeans()(vectors.double(), labels).vectors
    for adjacency in Adjacency:
        result = all_stages(make_rapp(epsilon=1000.0, adjacency=adjacency, clip_norm=20.0), vectors, labels)
        error = (result.prototypes.vectors - clean).square().sum(1).mean()
        assert error < 1e-3 * (clean - clean.mean(0)).square().sum(1).mean()


def test_published_variances_are_the_noise() -> None:
    """Over many runs the error has the variance that was published, once clipping does not matter."""
    vectors, labels = blobs(1, 400)
    clean = ClassMeans()(vectors.double(), labels).vectors
    ratios = []
    for seed in range(40):
        mechanism = make_rapp(rounds=1, epsilon=4.0, clip_norm=40.0, shares=(1.0,))
        result = opened(mechanism.release(vectors, labels, release_context(seed=seed))).prototypes
        ratios.append(float(((result.vectors - clean).square().mean(1) / result.variances).mean()))
    assert 0.9 < sum(ratios) / len(ratios) < 1.1


def test_stages_beat_one_release_of_everything() -> None:
    vectors, labels = blobs(1, 2000)
    vectors = vectors + 20  # far from the origin: what recentring is for
    clean = ClassMeans()(vectors.double(), labels).vectors

    def error(shares: tuple[float, ...]) -> float:
        # without a broadcast: centres come from the client's own stages, all in one release
        mechanism = make_rapp(rounds=1, epsilon=4.0, clip_norm=120.0, shares=shares)
        result = opened(mechanism.release(vectors, labels, release_context())).prototypes
        return float((result.vectors - clean).square().mean())

    assert error((0.05, 0.10, 0.15, 0.30, 0.40)) < 0.2 * error((1.0,))


def test_later_stages_correct_a_wrong_clip_norm() -> None:
    vectors, labels = blobs(1, 2000)
    for guess in (8.0, 17.0, 34.0):  # a feature is about 17 long, and about 5.7 from its class mean
        result = all_stages(make_rapp(epsilon=8.0, clip_norm=guess), vectors, labels)
        assert result.diagnostics["radius"] == pytest.approx(DIM**0.5, rel=0.4)


def test_counts_below_their_noise_are_read_as_their_noise() -> None:
    initial = RappState.initial(4, 2, 1.0)
    known = RappState.from_dict({**initial.to_dict(), "counts": torch.tensor([-30.0, 0.0, 50.0, 60.0]) / 25})
    known = RappState.from_dict({**known.to_dict(), "counted": torch.tensor(1 / 25, dtype=torch.float64)})
    counts = estimate_counts(known, 80, counts_are_private=True)
    assert counts.min() == 5  # √25
    assert counts.max() < 60  # towards the mean
    assert estimate_counts(known, 80, counts_are_private=False).round().tolist() == [1, 1, 50, 60]


def test_the_terms_state_which_counts_are_private() -> None:
    for adjacency, per_class, counts in (
        ("replace-same-label", 1, CountVisibility.PUBLIC),
        ("replace-same-label", 2, CountVisibility.PRIVATE),
        ("replace-one", 1, CountVisibility.PRIVATE),
        ("add-remove", 1, CountVisibility.PRIVATE),
    ):
        mechanism = make_rapp(adjacency=adjacency, per_class=per_class)
        assert mechanism.release(*blobs(1), release_context()).receipt.terms.counts is counts
    personal = release_context()
    object.__setattr__(personal, "encoder", EncoderKind.PERSONAL)
    assert make_rapp().release(*blobs(1), personal).receipt.level is GuaranteeLevel.CONDITIONAL


def test_features_of_another_dimension_are_refused() -> None:
    with pytest.raises(InvalidInput, match=f"expected features of {DIM} dimensions, got 3"):
        make_rapp().release(torch.ones(4, 3), torch.arange(4), release_context())


def test_the_dimension_of_a_release_follows_from_public_numbers() -> None:
    assert default_release_dim(512, Budget(1.0, 1e-5), 0) == 512
    assert default_release_dim(512, Budget(1.0, 1e-5), 20) == 64
    assert 64 < default_release_dim(512, Budget(1.0, 1e-5), 80) < 512
    assert default_release_dim(512, Budget(1.0, 1e-5), 200) == 512
    assert default_release_dim(512, Budget(8.0, 1e-5), 20) > default_release_dim(512, Budget(1.0, 1e-5), 20)
    assert default_release_dim(16, Budget(1.0, 1e-5), 5) == 16


def test_several_centres_find_several_modes() -> None:
    streams = Streams(4)
    modes = 6 * torch.randn(CLASSES, 2, DIM, generator=streams.generator("modes"))
    labels = torch.arange(4000) % CLASSES
    which = torch.arange(4000) // 4 % 2
    vectors = modes[labels, which] + torch.randn(4000, DIM, generator=streams.generator("spread"))

    def left(per_class: int) -> float:
        mechanism = make_rapp(rounds=8, epsilon=8.0, clip_norm=35.0, per_class=per_class, shares=(1.0,) * 8)
        state = {}
        for t in range(1, 9):
            release = opened(mechanism.release(vectors, labels, release_context(t, state=state)))
            state = release.state
        centres = release.prototypes.vectors.reshape(CLASSES, per_class, DIM)[labels]
        return float((vectors[:, None] - centres).square().sum(2).min(1).values.mean())

    assert left(2) < 0.5 * left(1)
