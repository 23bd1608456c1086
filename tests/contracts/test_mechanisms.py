"""What every mechanism must do, whichever it is."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.conftest import BUDGET, CLASSES, DIM, ROUNDS, blobs
from vpdr import Adjacency, BudgetExceeded, ClassSums, FinchClusters, KMeansClusters, Ledger, Occasion
from vpdr.errors import InvalidInput, VpdrError
from vpdr.mechanisms import Mechanism, Rapp, SeededNoise
from vpdr.privacy.events import NotPrivate
from vpdr.privacy.terms import EncoderKind, Level
from vpdr.rng import Streams
from vpdr.types import Prototypes


def occasion(t: int = 1, **settings: object) -> Occasion:
    return Occasion(client="amazon", round=t, noise=SeededNoise(Streams(7).draw("release", t=t)), **settings)


def test_it_is_a_mechanism(mechanism) -> None:
    assert isinstance(mechanism, Mechanism)


def test_what_it_says_of_its_kind_is_so(mechanism) -> None:
    """Plans believe these facts before there is a mechanism to look at."""
    events = mechanism.planned(occasion()).events
    assert mechanism.facts.private or any(isinstance(event, NotPrivate) for event in events)
    about = mechanism.bounds(Adjacency.REPLACE_SAME_LABEL, ClassSums(classes=CLASSES))
    assert mechanism.facts.selects == ("selection" in about)
    assert mechanism.facts.staged == isinstance(mechanism, Rapp)


def test_what_costs_a_finite_budget_says_so(private_mechanism) -> None:
    assert private_mechanism.facts.private
    assert not any(isinstance(each, NotPrivate) for each in private_mechanism.planned(occasion()).events)


def test_the_same_draws_give_the_same_release(mechanism) -> None:
    first, second = (mechanism.release(*blobs(1), occasion()) for _ in range(2))
    assert torch.equal(first.prototypes.vectors, second.prototypes.vectors)


def test_without_a_seed_no_two_releases_are_alike(private_mechanism) -> None:
    first, second = (private_mechanism.release(*blobs(1)) for _ in range(2))
    assert not torch.equal(first.prototypes.vectors, second.prototypes.vectors)


def test_its_input_is_left_as_it_was(mechanism) -> None:
    vectors, labels = blobs(1)
    kept = vectors.double(), labels.clone()
    mechanism.release(kept[0], kept[1], occasion())
    assert torch.equal(kept[0], vectors.double())
    assert torch.equal(kept[1], labels)


def test_the_order_of_samples_does_not_matter(mechanism) -> None:
    vectors, labels = blobs(1)
    order = torch.randperm(len(labels), generator=Streams(3).draw("order"))
    first = mechanism.release(vectors, labels, occasion()).prototypes.vectors
    second = mechanism.release(vectors[order], labels[order], occasion()).prototypes.vectors
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_numpy_and_torch_are_the_same(mechanism, dtype) -> None:
    vectors, labels = blobs(1)
    vectors = vectors.numpy().astype(dtype)
    first = mechanism.release(vectors, labels.numpy(), occasion()).prototypes.vectors
    second = mechanism.release(torch.from_numpy(vectors), labels, occasion()).prototypes.vectors
    assert torch.equal(first, second)


def test_the_upload_holds_vectors_and_labels_and_nothing_else(mechanism) -> None:
    upload = mechanism.release(*blobs(1), occasion()).prototypes
    assert type(upload) is Prototypes
    assert upload.__slots__ == ("vectors", "labels", "variances", "on_path")
    assert not upload.on_path  # which is the client's to say, by what it has heard
    own_sums = isinstance(mechanism, Rapp)  # whose noise tells nothing that is not public
    assert (upload.variances is not None) == own_sums
    assert upload.vectors.dtype is torch.float32
    assert upload.vectors.shape == (CLASSES, DIM)
    assert upload.labels.tolist() == list(range(CLASSES))
    assert not hasattr(upload, "__dict__")


@pytest.mark.parametrize("adjacency", Adjacency)
def test_it_states_a_sensitivity_or_that_it_has_none(mechanism, adjacency) -> None:
    for rule in (ClassSums(classes=CLASSES), FinchClusters(), KMeansClusters()):
        for words in mechanism.bounds(adjacency, rule).values():
            assert words.startswith(("l2 ", "l-infinity ", "none: "))


def test_all_rounds_fit_the_budget_and_one_more_does_not(private_mechanism) -> None:
    ledger, memory = Ledger(client="amazon", budget=BUDGET), {}
    for t in range(1, ROUNDS + 1):
        release = private_mechanism.release(*blobs(1), occasion(t, memory=memory))
        assert release.charged_to(ledger, round=t) is release.prototypes
        memory = release.memory
    assert BUDGET.epsilon * (1 - 1e-6) < ledger.spent <= BUDGET.epsilon
    with pytest.raises(BudgetExceeded, match=r"amazon: epsilon would reach 1\.0"):
        private_mechanism.release(*blobs(1), occasion(21, memory=memory)).charged_to(ledger, round=21)
    assert len(ledger.entries) == ROUNDS


def test_it_says_what_a_release_will_cost_before_it_has_seen_a_sample(mechanism) -> None:
    memory = {}
    for t in range(1, 4):
        planned = mechanism.planned(occasion(t, memory=memory))
        release = mechanism.release(*blobs(1), occasion(t, memory=memory))
        assert release.receipt == planned
        assert release.paid_with(planned) is release.prototypes
        memory = release.memory


def test_what_was_not_paid_for_is_not_handed_over(private_mechanism) -> None:
    release = private_mechanism.release(*blobs(1), occasion())
    less = dataclasses.replace(release.receipt, events=release.receipt.events[:-1])
    with pytest.raises(VpdrError, match="was paid for"):
        release.paid_with(less)


def test_what_is_not_private_never_passes_a_budget(mechanism) -> None:
    release = mechanism.release(*blobs(1), occasion(encoder=EncoderKind.PUBLIC))
    if release.receipt.level is Level.NONE:
        with pytest.raises(BudgetExceeded):
            release.charged_to(Ledger(client="amazon", budget=BUDGET), round=1)
    else:
        assert release.receipt.level is Level.PROVED


@pytest.mark.parametrize(
    ("rule", "encoder", "level"),
    [
        (None, EncoderKind.PUBLIC, Level.PROVED),
        (None, EncoderKind.TRANSCRIPT, Level.PROVED),
        (None, EncoderKind.PERSONAL, Level.CONDITIONAL),
        (FinchClusters(), EncoderKind.PUBLIC, Level.AS_PUBLISHED),
        (KMeansClusters(), EncoderKind.PERSONAL, Level.AS_PUBLISHED),
    ],
)
def test_the_level_follows_from_encoder_and_rule(private_mechanism, rule, encoder, level) -> None:
    if rule is not None and isinstance(private_mechanism, Rapp):
        pytest.skip("makes its own sums")
    extra = {} if rule is None else {"summarise": rule}
    receipt = private_mechanism.release(*blobs(1), occasion(encoder=encoder, **extra)).receipt
    assert receipt.level is level


BAD_INPUT = {
    "three axes": (torch.zeros(4, 1, DIM), torch.zeros(4, dtype=torch.int64), "shape"),
    "integer features": (
        torch.zeros(4, DIM, dtype=torch.int64),
        torch.zeros(4, dtype=torch.int64),
        "floating",
    ),
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
        mechanism.release(vectors, labels, occasion(classes=CLASSES))
    assert str(caught.value).startswith("amazon: ")
    assert "\n" not in str(caught.value)


def test_huge_but_finite_features_are_no_mistake(mechanism) -> None:
    vectors, labels = blobs(1)
    release = mechanism.release(vectors.double() * 1e305, labels, occasion())
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
    extra = {"summarise": rules[rule]} if rule in rules else {}
    upload = mechanism.release(vectors.float(), labels, occasion(**extra)).prototypes
    assert upload.vectors.isfinite().all()
    everything = rule == "sums" or isinstance(mechanism, Rapp)
    expected = range(CLASSES) if everything else labels.unique().tolist()
    assert sorted(set(upload.labels.tolist())) == sorted(expected)


def test_a_release_is_diagnosed(private_mechanism) -> None:
    found = private_mechanism.release(*blobs(1), occasion()).diagnostics
    assert found.keys() >= {"sigma", "noise_to_signal", "energy_ratio"}
    if "overlap" in found:
        assert found.keys() >= {"sigma_focus", "sigma_rest", "selection_scale", "saturated", "chance"}
        assert found["sigma_focus"] < found["sigma"] < found["sigma_rest"]
        assert 0 <= found["overlap"] <= 1
        assert found["chance"] == 7 / DIM
