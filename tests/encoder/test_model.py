import copy
import math

import pytest
import torch

from vpdr.encoder import Adapter, SeededDropout, make_head, make_path, seed_dropout
from vpdr.errors import InvalidInput
from vpdr.rng import Streams


def stream(name="x", seed=0):
    return Streams(seed).draw(name)


def path(seed=0, kind="random", scale=1.0):
    return make_path(kind, 12, 8, rng=Streams(seed).draw("projection"), scale=scale)


def adapter(client=0):
    return Adapter(8, 4, 0.1, rng=Streams(0).draw("adapter", client=client))


def numbers(*shape):
    return torch.randn(*shape, generator=stream("numbers"))


def test_a_new_adapter_is_the_identity_and_a_trained_one_follows_its_formula():
    adapter = Adapter(6, 3, 0.1, rng=stream()).eval()
    x = numbers(5, 6)
    assert torch.equal(adapter(x), x)
    torch.nn.init.normal_(adapter.up.weight, generator=stream("up"))
    by_hand = x + (x @ adapter.down.weight.T).clamp(min=0) @ adapter.up.weight.T
    torch.testing.assert_close(adapter(x), by_hand)
    assert [name for name, _ in adapter.named_parameters()] == ["down.weight", "up.weight"]


def test_all_clients_share_the_projection_and_no_one_can_train_it():
    pooled = numbers(3, 12)
    assert torch.equal(path()(pooled), path()(pooled))
    assert not torch.equal(path()(pooled), path(seed=5)(pooled))
    assert not any(parameter.requires_grad for parameter in path().parameters())
    torch.testing.assert_close(path(scale=2.0)(pooled), 2 * path()(pooled))


def test_an_orthogonal_projection_keeps_angles():
    weight = path(kind="orthogonal").projection.weight
    torch.testing.assert_close(weight @ weight.T, torch.eye(8))
    assert path(kind="orthogonal").projection.bias.abs().max() == 0


def test_a_random_projection_has_the_usual_range():
    projection = make_path("random", 1280, 512, rng=stream()).projection
    for values in (projection.weight, projection.bias):
        assert values.abs().max() <= 1 / math.sqrt(1280)
        assert values.abs().max() > 0.98 / math.sqrt(1280)


def test_the_paper_head_has_the_paper_size():
    head = make_head(512, 10, rng=stream())
    assert sum(parameter.numel() for parameter in head.parameters()) == 267_786
    assert [type(part).__name__ for part in head] == ["Linear", "ReLU", "SeededDropout", "Linear"]
    assert make_head(8, 3, rng=stream(), hidden=(7, 5)).eval()(numbers(2, 8)).shape == (2, 3)
    assert len(make_head(8, 3, rng=stream(), hidden=())) == 1


def test_nothing_touches_or_reads_the_global_generator():
    before = torch.random.get_rng_state()
    first = [p.clone() for p in (*adapter().parameters(), *make_head(8, 3, rng=stream()).parameters())]
    dropout = SeededDropout(0.5)
    dropout.rng = stream()
    dropout(torch.ones(9))
    assert torch.equal(before, torch.random.get_rng_state())
    torch.rand(7)
    second = [*adapter().parameters(), *make_head(8, 3, rng=stream()).parameters()]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_dropout_draws_from_its_stream_and_keeps_the_mean():
    dropout, x = SeededDropout(0.1), torch.ones(100, 100)
    dropout.rng = stream("mask")
    first, second = dropout(x), dropout(x)
    dropout.rng = stream("mask")
    assert torch.equal(first, dropout(x))
    assert not torch.equal(first, second)
    torch.testing.assert_close(first.unique(), torch.tensor([0.0, 1 / 0.9]))
    assert abs(first.mean().item() - 1) < 5 * math.sqrt(0.1 / 0.9) / 100
    assert torch.equal(dropout.eval()(x), x)


def test_dropout_in_training_needs_a_stream_unless_it_drops_nothing():
    with pytest.raises(InvalidInput, match="call seed_dropout first"):
        SeededDropout(0.1)(torch.ones(2))
    assert torch.equal(SeededDropout(0.0)(torch.ones(2)), torch.ones(2))


def test_one_call_seeds_every_dropout_and_a_copy_has_none():
    model = torch.nn.ModuleList([adapter(), make_head(8, 3, rng=stream(), hidden=(7, 5))])
    seed_dropout(model, stream("round"))
    parts = [part for part in model.modules() if isinstance(part, SeededDropout)]
    assert len(parts) == 3
    assert len({id(part.rng) for part in parts}) == 1
    twin = copy.deepcopy(model)
    assert all(part.rng is None for part in twin.modules() if isinstance(part, SeededDropout))
    assert all(part.rng is not None for part in parts)


def test_gradients_reach_the_adapter_and_the_head_only():
    frozen, personal, head = path(), adapter(), make_head(8, 3, rng=stream())
    for module in (personal, head):
        seed_dropout(module, stream("round"))
    head(personal(frozen(numbers(4, 12)))).sum().backward()
    assert personal.up.weight.grad.abs().max() > 0
    assert frozen.projection.weight.grad is None
    assert all(parameter.grad is not None for parameter in head.parameters())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("none", 12, 8, 1.0), "projection must be one of random, orthogonal, train"),
        (("random", 12, 0, 1.0), "dim must be at least 1"),
        (("random", 12, 8, 0.0), "projection_scale must be positive"),
    ],
)
def test_a_path_that_cannot_be_is_refused(wrong, words):
    kind, pooled, dim, scale = wrong
    with pytest.raises(InvalidInput, match=words):
        make_path(kind, pooled, dim, rng=stream(), scale=scale)


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_a_dropout_that_cannot_be_is_refused(p):
    with pytest.raises(InvalidInput, match="dropout"):
        SeededDropout(p)
