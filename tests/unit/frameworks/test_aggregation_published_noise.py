"""Servers and clients that use the published noise of prototypes."""

import pytest
import torch

from tests.unit.frameworks.framework_cases import CLASSES, DIM, now
from vpdr.frameworks import FRAMEWORKS, FedProto, base
from vpdr.frameworks.aggregation import denoise_uploads, pool_uploads
from vpdr.rng import Streams
from vpdr.types import Prototypes, TrainBatch

ANCHORED = ["fedproto", "fedpcl", "fpl", "fedplvm", "fedtgp", "mpft"]
SMALL = {"fedtgp": {"epochs": 2}, "mpft": {"epochs": 1, "hidden": 8, "reduction": 2}}


def uploads(noise: float, clients: int = 5, dim: int = DIM, per_class: int = 1, seed: int = 0) -> list[Prototypes]:
    """The same clean prototypes from everybody, with noise of this variance."""
    clean = 2 * torch.randn(CLASSES, dim, generator=Streams(seed).generator("clean"))
    labels = torch.arange(CLASSES).repeat_interleave(per_class)
    received = []
    for client in range(clients):
        drawn = torch.randn(len(labels), dim, generator=Streams(seed + 1).generator("noise", client=client))
        vectors = clean[labels] + noise**0.5 * drawn
        received.append(Prototypes(vectors, labels, torch.full((len(labels),), noise)))
    return received


def typical(noise: float, per_class: int, clients: int = 5, dim: int = 64) -> list[Prototypes]:
    """Noise with just the energy that is expected in all sums, so that no class stands out by chance."""
    labels = torch.arange(CLASSES).repeat_interleave(per_class)
    drawn = torch.randn(dim, CLASSES + clients * len(labels), generator=Streams(2).generator("rows"))
    rows = dim**0.5 * torch.linalg.qr(drawn.double()).Q.T  # none of them has a part of another
    clean, noises = 2 * rows[:CLASSES], rows[CLASSES:].reshape(clients, len(labels), dim)
    variances = torch.full((len(labels),), noise)
    return [Prototypes((clean[labels] + noise**0.5 * n).float(), labels, variances) for n in noises]


def step(seed: int = 0, dim: int = DIM) -> TrainBatch:
    rng = Streams(seed).generator("step")
    features = torch.randn(6, dim, generator=rng).requires_grad_()
    logits = torch.randn(6, CLASSES, generator=rng)
    return TrainBatch(features, logits, torch.tensor([0, 1, 2, 3, 0, 1]), features.detach(), torch.ones(6))


def test_reliability_is_signal_over_signal_and_noise() -> None:
    vectors = torch.tensor([[2.0, 0.0], [-2.0, 0.0]])
    anchors = Prototypes(vectors, torch.tensor([0, 1]), torch.tensor([2.0, 6.0]))
    # |row - mean|² per coordinate is 2 for both: 2/4 and 2/8; a class without an anchor is not judged
    assert base.class_reliability(anchors, 3).tolist() == [0.5, 0.25, 1.0]
    assert base.class_reliability(Prototypes(vectors, torch.tensor([0, 1])), 3).tolist() == [1.0, 1.0, 1.0]
    same = Prototypes(torch.ones(2, 2), torch.tensor([0, 1]), torch.tensor([1.0, 0.0]))
    assert base.class_reliability(same, 2).tolist() == [0.0, 0.0]


def test_alignment_is_weighted_by_reliability() -> None:
    vectors, labels = torch.randn(CLASSES, DIM, generator=Streams(3).generator("x")), torch.arange(CLASSES)
    sure = Prototypes(vectors, labels, torch.zeros(CLASSES))
    unsure = Prototypes(vectors, labels, torch.full((CLASSES,), 1e9))
    received = base.alignment_loss(step(), Prototypes(vectors, labels)).detach()
    assert torch.equal(base.alignment_loss(step(), sure), received)
    assert base.alignment_loss(step(), unsure).detach() < 1e-6 * received


@pytest.mark.parametrize("per_class", [1, 2])
@pytest.mark.parametrize("name", ANCHORED)
def test_prototypes_that_are_mostly_noise_add_no_loss(name, per_class) -> None:
    """All terms but the client's own task vanish, so training falls back to what `local` does.

    What is left is what keeps classes in order. The next test bounds what chance adds to it.
    """
    framework = FRAMEWORKS[name](**SMALL.get(name, {}))

    def shared(noise: float) -> float:
        received = typical(noise, per_class)
        at = now(received, dim=64)
        broadcast, _ = framework.aggregate(received, framework.init_state(at), at)
        terms = framework.losses(step(dim=64), framework.unpack(framework.pack(broadcast)))
        return sum(abs(float(value.detach())) for term, value in terms.items() if term != "task")

    assert shared(1e6) < 2e-4 * shared(1e-6)


@pytest.mark.parametrize("favoured", [1.0, 10.0])
@pytest.mark.parametrize("per_class", [1, 2, 3])
def test_pure_noise_is_reliable_by_chance_only(per_class, favoured) -> None:
    """Its energy between classes strays by √(2/(C-1)d) of itself: trust is no more than three times that."""
    dim = 256
    weights = torch.ones(5, CLASSES)
    weights[0] = favoured
    trusts = []
    for seed in range(0, 40, 2):
        received = uploads(1e6, dim=dim, per_class=per_class, seed=seed)
        overall = denoise_uploads(
            pool_uploads(received, now(received, dim=dim, weights=weights)), CLASSES
        ).class_prototypes
        trusts.append(float(base.class_reliability(overall, CLASSES).max()))
    chance = (2 / ((CLASSES - 1) * dim)) ** 0.5
    assert max(trusts) < 3 * chance
    assert sum(trusts) / len(trusts) < chance / 2


def test_several_centres_of_a_class_are_pooled_as_estimates_of_it() -> None:
    received = uploads(4.0, dim=256, per_class=2)
    clean = 2 * torch.randn(CLASSES, 256, generator=Streams(0).generator("clean"))
    result = denoise_uploads(pool_uploads(received, now(received, dim=256)), CLASSES)
    assert (result.class_prototypes.vectors - clean).square().mean() < 1.1 * 4.0 / 10  # ten guesses of each class
    assert result.class_prototypes.variances is not None
    assert ((result.class_prototypes.variances > 0.5 * 4.0 / 10) & (result.class_prototypes.variances < 4.0 / 10)).all()
    assert (result.prototypes.vectors - clean[result.prototypes.labels]).square().mean() < 1


def test_prototypes_without_noise_are_not_moved() -> None:
    received = uploads(1e-6, per_class=3)
    apart = [
        Prototypes(10 * i + u.vectors + torch.arange(12)[:, None], u.labels, u.variances)
        for i, u in enumerate(received)
    ]
    pooled = pool_uploads(apart, now(apart))
    each = denoise_uploads(pooled, CLASSES).prototypes
    torch.testing.assert_close(each.vectors, pooled.prototypes.vectors, atol=0.01, rtol=0.0)
    assert torch.equal(each.labels, pooled.prototypes.labels)


def test_a_server_reads_clients_and_classes_together() -> None:
    received = uploads(4.0, dim=256)
    lacking = received[0].vectors.clone()
    lacking[2] = 1e4  # one client does not have class 2, and says so
    variances = received[0].variances.clone()
    variances[2] = 1e10
    received[0] = Prototypes(lacking, received[0].labels, variances)
    clean = 2 * torch.randn(CLASSES, 256, generator=Streams(0).generator("clean"))
    at = now(received, dim=256)
    broadcast, _ = FedProto().aggregate(received, {}, at)
    error = (broadcast.vectors - clean).square().mean(1)
    assert (error < 4.0 / 4).all()  # a plain mean of five would have 0.8, and class 2 would be lost
    assert broadcast.variances is not None
    assert broadcast.variances.dtype is torch.float32
    each = denoise_uploads(pool_uploads(received, at), CLASSES).prototypes
    assert (each.vectors[2] - clean[2]).square().mean() < 2


def test_client_weights_are_kept() -> None:
    labels = torch.arange(CLASSES)
    noise = torch.full((CLASSES,), 1e-4)
    one, two = (Prototypes(torch.eye(CLASSES, DIM) * s, labels, noise) for s in (1.0, 3.0))
    for weights, nearer in ((torch.tensor([[1e3], [1.0]]), 1.0), (torch.tensor([[1.0], [1e3]]), 3.0)):
        at = now([one, two], weights=weights.expand(2, CLASSES).contiguous())
        broadcast, _ = FedProto().aggregate([one, two], {}, at)
        received = float(broadcast.vectors[0, 0])
        assert abs(received - nearer) < abs(received - (4 - nearer))


@pytest.mark.parametrize("per_class", [1, 2])
def test_the_variance_is_that_of_the_weighted_mean(per_class) -> None:
    """Five clients that differ: where one has all the weight, the noise of the others averages nothing."""
    streams, dim, labels = Streams(11), 2000, torch.arange(CLASSES).repeat_interleave(per_class)
    noise = torch.full((len(labels),), 1.0)
    shape = (5, len(labels), dim)
    clean = 2 * torch.randn(CLASSES, dim, generator=streams.generator("class"))[labels]
    clean = clean + torch.randn(shape, generator=streams.generator("rest"))
    noisy = clean + torch.randn(shape, generator=streams.generator("noise"))
    received = [Prototypes(vectors, labels, noise) for vectors in noisy]
    weights = torch.ones(5, CLASSES)
    weights[0] = 1e6
    overall = denoise_uploads(pool_uploads(received, now(received, dim=dim, weights=weights)), CLASSES).class_prototypes
    target = clean[0].reshape(CLASSES, per_class, dim).mean(dim=1)
    error = (overall.vectors - target).square().mean(dim=1)
    assert overall.variances is not None
    torch.testing.assert_close(overall.variances, error, rtol=0.15, atol=0.0)
    equal = denoise_uploads(pool_uploads(received, now(received, dim=dim)), CLASSES).class_prototypes
    assert equal.variances is not None
    assert (overall.variances > 1.2 * equal.variances).all()


def test_without_published_noise_nothing_changes() -> None:
    received = [Prototypes(upload.vectors, upload.labels) for upload in uploads(1.0)]
    broadcast, _ = FedProto().aggregate(received, {}, now(received))
    assert broadcast.variances is None
    torch.testing.assert_close(broadcast.vectors, torch.stack([t.vectors for t in received]).mean(0))
