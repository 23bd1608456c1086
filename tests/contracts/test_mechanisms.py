"""The contract of every mechanism."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.conftest import BUDGET, CLASSES, DIM, ROUNDS, blobs, opened
from tests.contracts.conftest import mechanism_config
from tests.contracts.plug_ins import with_dummies
from vpdr import (
    Adjacency,
    BudgetExceeded,
    ChargeRequired,
    ClassSums,
    FinchClusters,
    Igpp,
    KMeansClusters,
    Ledger,
    NoPrivacy,
    Rapp,
    ReleaseContext,
    SeededNoise,
    SelectionConfig,
    Vpp,
)
from vpdr.mechanisms import MECHANISMS, Mechanism, ReleaseProjection
from vpdr.privacy import EncoderKind, GuaranteeLevel, NotPrivateEvent
from vpdr.privacy.guarantee import Arithmetic
from vpdr.rng import Streams
from vpdr.types import Prototypes
from vpdr.validation import InvalidInput, VpdrError


def release_context(round: int = 1, **settings: object) -> ReleaseContext:
    return ReleaseContext(
        client="amazon", round=round, noise=SeededNoise(Streams(7).generator("release", round=round)), **settings
    )


def test_it_is_a_mechanism(mechanism) -> None:
    assert isinstance(mechanism, Mechanism)


def test_the_traits_describe_the_mechanism(mechanism) -> None:
    """Configurations use the traits before a mechanism is built."""
    events = mechanism.receipt_for(release_context()).events
    assert mechanism.traits.is_private or any(isinstance(event, NotPrivateEvent) for event in events)
    assert mechanism.traits.has_selection == hasattr(mechanism, "selection")
    assert mechanism.traits.is_accumulating == isinstance(mechanism, Rapp)
    arithmetic = mechanism.receipt_for(release_context()).terms.arithmetic
    assert mechanism.traits.is_exact == (arithmetic is Arithmetic.INTEGER)


def test_a_private_mechanism_has_no_event_without_privacy(private_mechanism) -> None:
    assert private_mechanism.traits.is_private
    assert not any(
        isinstance(each, NotPrivateEvent) for each in private_mechanism.receipt_for(release_context()).events
    )


def test_the_same_draws_give_the_same_release(mechanism) -> None:
    first, second = (opened(mechanism.release(*blobs(1), release_context())) for _ in range(2))
    assert torch.equal(first.prototypes.vectors, second.prototypes.vectors)


def test_without_a_seed_no_two_releases_are_alike(private_mechanism) -> None:
    first, second = (opened(private_mechanism.release(*blobs(1))) for _ in range(2))
    assert not torch.equal(first.prototypes.vectors, second.prototypes.vectors)


def test_its_input_is_left_as_it_was(mechanism) -> None:
    vectors, labels = blobs(1)
    copies = vectors.double(), labels.clone()
    mechanism.release(copies[0], copies[1], release_context())
    assert torch.equal(copies[0], vectors.double())
    assert torch.equal(copies[1], labels)


def test_the_order_of_samples_does_not_matter(mechanism) -> None:
    vectors, labels = blobs(1)
    order = torch.randperm(len(labels), generator=Streams(3).generator("order"))
    first = opened(mechanism.release(vectors, labels, release_context())).prototypes.vectors
    second = opened(mechanism.release(vectors[order], labels[order], release_context())).prototypes.vectors
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_numpy_and_torch_are_the_same(mechanism, dtype) -> None:
    vectors, labels = blobs(1)
    vectors = vectors.numpy().astype(dtype)
    first = opened(mechanism.release(vectors, labels.numpy(), release_context())).prototypes.vectors
    second = opened(mechanism.release(torch.from_numpy(vectors), labels, release_context())).prototypes.vectors
    assert torch.equal(first, second)


def test_the_upload_holds_vectors_and_labels_and_nothing_else(mechanism) -> None:
    upload = opened(mechanism.release(*blobs(1), release_context())).prototypes
    assert type(upload) is Prototypes
    assert upload.__slots__ == ("vectors", "labels", "variances", "in_broadcast_space")
    assert not upload.in_broadcast_space  # set by the client, not by the mechanism
    # the noise of accumulated sums depends on public numbers only, so it may be published
    assert (upload.variances is not None) == mechanism.traits.is_accumulating
    assert upload.vectors.dtype is torch.float32
    assert upload.vectors.shape == (CLASSES, DIM)
    assert upload.labels.tolist() == list(range(CLASSES))
    assert not hasattr(upload, "__dict__")


def test_all_rounds_fit_the_budget_and_one_more_does_not(private_mechanism) -> None:
    ledger, state = Ledger(client="amazon", budget=BUDGET), {}
    for t in range(1, ROUNDS + 1):
        release = private_mechanism.release(*blobs(1), release_context(t, state=state))
        assert release.charge_to(ledger, round=t) is release.prototypes
        state = release.state
    assert BUDGET.epsilon * (1 - 1e-6) < ledger.epsilon_spent <= BUDGET.epsilon
    with pytest.raises(BudgetExceeded, match=r"amazon: epsilon would reach 1\.0"):
        private_mechanism.release(*blobs(1), release_context(21, state=state)).charge_to(ledger, round=21)
    assert len(ledger.entries) == ROUNDS


def test_the_receipt_is_known_before_the_release(mechanism) -> None:
    state = {}
    for t in range(1, 4):
        receipt = mechanism.receipt_for(release_context(t, state=state))
        release = mechanism.release(*blobs(1), release_context(t, state=state))
        assert release.receipt == receipt
        charge = Ledger(client="amazon", budget=None).charge(receipt, round=t)
        assert release.open(charge) is release.prototypes
        state = release.state


def test_what_was_not_paid_for_is_not_handed_over(private_mechanism) -> None:
    release = private_mechanism.release(*blobs(1), release_context())
    less = dataclasses.replace(release.receipt, events=release.receipt.events[:-1])
    with pytest.raises(VpdrError, match="was paid for"):
        release.open(Ledger(client="amazon", budget=None).charge(less, round=1))
    with pytest.raises(ChargeRequired):
        release.prototypes  # noqa: B018


def test_what_is_not_private_never_passes_a_budget(mechanism) -> None:
    release = mechanism.release(*blobs(1), release_context(encoder=EncoderKind.PUBLIC))
    if release.receipt.level is GuaranteeLevel.NONE:
        with pytest.raises(BudgetExceeded):
            release.charge_to(Ledger(client="amazon", budget=BUDGET), round=1)
    else:
        assert release.receipt.level is GuaranteeLevel.PROVED


@pytest.mark.parametrize(
    ("rule", "encoder", "level"),
    [
        (None, EncoderKind.PUBLIC, GuaranteeLevel.PROVED),
        (None, EncoderKind.BROADCAST, GuaranteeLevel.PROVED),
        (None, EncoderKind.PERSONAL, GuaranteeLevel.CONDITIONAL),
        (FinchClusters(), EncoderKind.PUBLIC, GuaranteeLevel.AS_PUBLISHED),
        (KMeansClusters(), EncoderKind.PERSONAL, GuaranteeLevel.AS_PUBLISHED),
    ],
)
def test_the_level_follows_from_encoder_and_rule(private_mechanism, rule, encoder, level) -> None:
    if rule is not None and private_mechanism.traits.is_accumulating:
        pytest.skip("does not use the summariser")
    extra = {} if rule is None else {"summariser": rule}
    receipt = private_mechanism.release(*blobs(1), release_context(encoder=encoder, **extra)).receipt
    assert receipt.level is level


BAD_INPUT = {
    "three axes": (torch.zeros(4, 1, DIM), torch.zeros(4, dtype=torch.int64), "shape"),
    "integer features": (torch.zeros(4, DIM, dtype=torch.int64), torch.zeros(4, dtype=torch.int64), "floating"),
    "float labels": (torch.zeros(4, DIM), torch.zeros(4), "integers"),
    "two-dimensional labels": (torch.zeros(4, DIM), torch.zeros(4, 1, dtype=torch.int64), "labels of shape"),
    "fewer labels": (torch.zeros(4, DIM), torch.zeros(3, dtype=torch.int64), "one label for each"),
    "negative label": (torch.zeros(4, DIM), torch.tensor([0, 1, -1, 0]), "negative"),
    "label out of range": (torch.zeros(4, DIM), torch.tensor([0, 1, 4, 0]), "below 4"),
    "NaN": (torch.full((4, DIM), torch.nan), torch.zeros(4, dtype=torch.int64), "4 of 4 features hold NaN"),
    "infinity": (torch.full((4, DIM), torch.inf), torch.zeros(4, dtype=torch.int64), "hold NaN or infinity"),
    "not an array": ("features", torch.zeros(4, dtype=torch.int64), "torch or numpy array"),
    "no dimensions": (torch.zeros(4, 0), torch.zeros(4, dtype=torch.int64), "shape"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_by_the_clients_name(mechanism, case) -> None:
    vectors, labels, words = BAD_INPUT[case]
    with pytest.raises(InvalidInput, match=words) as caught:
        mechanism.release(vectors, labels, release_context(classes=CLASSES))
    assert str(caught.value).startswith("amazon: ")
    assert "\n" not in str(caught.value)


def test_huge_but_finite_features_are_no_mistake(mechanism) -> None:
    vectors, labels = blobs(1)
    release = opened(mechanism.release(vectors.double() * 1e305, labels, release_context()))
    assert release.prototypes.vectors.shape == (CLASSES, DIM)


EDGE_CASES = {
    "one sample": (torch.ones(1, DIM), torch.tensor([2])),
    "one class": (blobs(1)[0][:5], torch.zeros(5, dtype=torch.int64)),
    "one sample a class": (blobs(1)[0][:4], torch.arange(4)),
    "no sample": (torch.zeros(0, DIM), torch.zeros(0, dtype=torch.int64)),
    "zero vectors": (torch.zeros(8, DIM), torch.arange(8) % 2),
    "constant coordinates": (torch.ones(8, DIM) * 5, torch.arange(8) % 2),
    "duplicates": (torch.ones(8, DIM) * torch.arange(8)[:, None] // 4, torch.arange(8) % 2),
}


@pytest.mark.parametrize("rule", ["means", "sums", "finch", "kmeans"])
@pytest.mark.parametrize("case", EDGE_CASES)
def test_small_clients_are_clients(mechanism, case, rule) -> None:
    vectors, labels = EDGE_CASES[case]
    rules = {"sums": ClassSums(classes=CLASSES), "finch": FinchClusters(), "kmeans": KMeansClusters()}
    extra = {"summariser": rules[rule]} if rule in rules else {}
    upload = opened(mechanism.release(vectors.float(), labels, release_context(**extra))).prototypes
    assert upload.vectors.isfinite().all()
    everything = rule == "sums" or mechanism.traits.is_accumulating
    expected = range(CLASSES) if everything else labels.unique().tolist()
    assert sorted(set(upload.labels.tolist())) == sorted(expected)


def test_a_release_is_diagnosed(private_mechanism) -> None:
    diagnostics = opened(private_mechanism.release(*blobs(1), release_context())).diagnostics
    assert diagnostics.keys() >= {"sigma", "noise_to_signal", "energy_ratio"}
    if "overlap" in diagnostics:
        assert diagnostics.keys() >= {"sigma_focus", "sigma_rest", "selection_scale", "saturated", "chance"}
        assert diagnostics["sigma_focus"] < diagnostics["sigma"] < diagnostics["sigma_rest"]
        assert 0 <= diagnostics["overlap"] <= 1
        assert diagnostics["chance"] == 7 / DIM


def test_a_configuration_gives_the_calibrated_mechanism() -> None:
    """Every mechanism reads its own options, and ignores those of the others."""
    options = {"keep": 0.1, "selection": "once", "accumulate": True, "stages": "1,2", "per_class": 2, "x": 1}
    settings = {"clip_norm": 5.0, "adjacency": Adjacency.REPLACE_ONE}
    projection = ReleaseProjection.random(DIM, 7, Streams(0).generator("release-space"))
    assert MECHANISMS["none"].from_config(mechanism_config(Adjacency.REPLACE_ONE, **options)) == NoPrivacy(
        adjacency=Adjacency.REPLACE_ONE
    )
    igpp = Igpp.calibrated(BUDGET, ROUNDS, accumulate=True, **settings)
    assert MECHANISMS["igpp"].from_config(mechanism_config(Adjacency.REPLACE_ONE, **options)) == igpp
    selection = SelectionConfig(keep=0.1, selection="once")
    vpp = Vpp.calibrated(BUDGET, ROUNDS, dim=DIM, selection=selection, **settings)
    assert MECHANISMS["vpp"].from_config(mechanism_config(Adjacency.REPLACE_ONE, **options)) == vpp
    rapp = MECHANISMS["rapp"].from_config(mechanism_config(Adjacency.REPLACE_ONE, **options, release_dim=7))
    assert rapp.stages.shares == (1.0, 2.0)
    assert rapp.per_class == 2
    assert torch.equal(rapp.projection.basis, projection.basis)
    assert MECHANISMS["rapp"].from_config(mechanism_config(Adjacency.REPLACE_ONE)).projection.is_identity


@pytest.mark.parametrize("kind", with_dummies(MECHANISMS))
def test_every_registered_mechanism_is_built_without_options(kind) -> None:
    mechanism = MECHANISMS[kind].from_config(mechanism_config(Adjacency.REPLACE_ONE))
    assert isinstance(mechanism, Mechanism)
    assert mechanism.adjacency is Adjacency.REPLACE_ONE
