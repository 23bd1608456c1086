import copy
import math

import pytest
import torch

from vpdr.encoder.backbone import BackboneInfo
from vpdr.encoder.personal import Adapter, SeededDropout, make_head, projection_for, seed_dropout
from vpdr.rng import Streams
from vpdr.validation import InvalidInput


def stream(name="x", seed=0):
    return Streams(seed).generator(name)


def make_projection(kind, pooled_dim, dim, **settings):
    return projection_for(BackboneInfo(modality="image", pooled_dim=pooled_dim, adapter_width=1), kind, dim, **settings)


def make_frozen(seed=0, kind="random", scale=1.0):
    return make_projection(kind, 12, 8, rng=Streams(seed).generator("projection"), scale=scale)


def make_adapter(client=0):
    return Adapter(8, 4, 0.1, rng=Streams(0).generator("adapter", client=client))


def random_features(*shape):
    return torch.randn(*shape, generator=stream("numbers"))


def test_a_new_adapter_is_the_identity_and_a_trained_one_follows_its_formula():
    adapter = Adapter(6, 3, 0.1, rng=stream()).eval()
    x = random_features(5, 6)
    assert torch.equal(adapter(x), x)
    torch.nn.init.normal_(adapter.up.weight, generator=stream("up"))
    expected = x + (x @ adapter.down.weight.T).clamp(min=0) @ adapter.up.weight.T
    torch.testing.assert_close(adapter(x), expected)
    assert [name for name, _ in adapter.named_parameters()] == ["down.weight", "up.weight"]


def test_all_clients_share_the_projection_and_no_client_can_train_it():
    pooled = random_features(3, 12)
    assert torch.equal(make_frozen()(pooled), make_frozen()(pooled))
    assert not torch.equal(make_frozen()(pooled), make_frozen(seed=5)(pooled))
    assert not any(parameter.requires_grad for parameter in make_frozen().parameters())
    torch.testing.assert_close(make_frozen(scale=2.0)(pooled), 2 * make_frozen()(pooled))


def test_an_orthogonal_projection_keeps_angles():
    weight = make_frozen(kind="orthogonal").linear.weight
    torch.testing.assert_close(weight @ weight.T, torch.eye(8))
    assert make_frozen(kind="orthogonal").linear.bias.abs().max() == 0


def test_a_random_projection_has_the_default_range():
    projection = make_projection("random", 1280, 512, rng=stream()).linear
    for values in (projection.weight, projection.bias):
        assert values.abs().max() <= 1 / math.sqrt(1280)
        assert values.abs().max() > 0.98 / math.sqrt(1280)


def test_the_paper_head_has_the_paper_size():
    head = make_head(512, 10, rng=stream())
    assert sum(parameter.numel() for parameter in head.parameters()) == 267_786
    assert [type(part).__name__ for part in head] == ["Linear", "ReLU", "SeededDropout", "Linear"]
    assert make_head(8, 3, rng=stream(), hidden=(7, 5)).eval()(random_features(2, 8)).shape == (2, 3)
    assert len(make_head(8, 3, rng=stream(), hidden=())) == 1


def test_the_global_generator_is_neither_used_nor_changed():
    before = torch.random.get_rng_state()
    first = [p.clone() for p in (*make_adapter().parameters(), *make_head(8, 3, rng=stream()).parameters())]
    dropout = SeededDropout(0.5)
    dropout.rng = stream()
    dropout(torch.ones(9))
    assert torch.equal(before, torch.random.get_rng_state())
    torch.rand(7)
    second = [*make_adapter().parameters(), *make_head(8, 3, rng=stream()).parameters()]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_dropout_draws_from_its_generator_and_keeps_the_mean():
    dropout, x = SeededDropout(0.1), torch.ones(100, 100)
    dropout.rng = stream("mask")
    first, second = dropout(x), dropout(x)
    dropout.rng = stream("mask")
    assert torch.equal(first, dropout(x))
    assert not torch.equal(first, second)
    torch.testing.assert_close(first.unique(), torch.tensor([0.0, 1 / 0.9]))
    assert abs(first.mean().item() - 1) < 5 * math.sqrt(0.1 / 0.9) / 100
    assert torch.equal(dropout.eval()(x), x)


def test_dropout_in_training_needs_a_generator_unless_it_drops_nothing():
    with pytest.raises(InvalidInput, match="call seed_dropout first"):
        SeededDropout(0.1)(torch.ones(2))
    assert torch.equal(SeededDropout(0.0)(torch.ones(2)), torch.ones(2))


def test_one_call_seeds_every_dropout_and_a_copy_has_no_generator():
    model = torch.nn.ModuleList([make_adapter(), make_head(8, 3, rng=stream(), hidden=(7, 5))])
    seed_dropout(model, stream("round"))
    dropouts = [part for part in model.modules() if isinstance(part, SeededDropout)]
    assert len(dropouts) == 3
    assert len({id(dropout.rng) for dropout in dropouts}) == 1
    copied = copy.deepcopy(model)
    assert all(part.rng is None for part in copied.modules() if isinstance(part, SeededDropout))
    assert all(dropout.rng is not None for dropout in dropouts)


def test_gradients_reach_the_adapter_and_the_head_only():
    frozen, personal, head = make_frozen(), make_adapter(), make_head(8, 3, rng=stream())
    for module in (personal, head):
        seed_dropout(module, stream("round"))
    head(personal(frozen(random_features(4, 12)))).sum().backward()
    assert personal.up.weight.grad.abs().max() > 0
    assert frozen.linear.weight.grad is None
    assert all(parameter.grad is not None for parameter in head.parameters())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("none", 12, 8, 1.0), "projection must be one of random, orthogonal, train"),
        (("random", 12, 0, 1.0), "dim must be at least 1"),
        (("random", 12, 8, 0.0), "projection_scale must be positive"),
    ],
)
def test_an_invalid_projection_is_refused(wrong, message):
    kind, pooled, dim, scale = wrong
    with pytest.raises(InvalidInput, match=message):
        make_projection(kind, pooled, dim, rng=stream(), scale=scale)


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_an_invalid_dropout_is_refused(p):
    with pytest.raises(InvalidInput, match="dropout"):
        SeededDropout(p)
