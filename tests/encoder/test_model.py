import copy
import math

import pytest
import torch

from vpdr.encoder import Adapter, EncoderShape, SeededDropout, make_encoder, make_head, seed_dropout
from vpdr.errors import InvalidInput
from vpdr.rng import Streams


def stream(name="x", seed=0):
    return Streams(seed).draw(name)


def encoder(seed=0, client=0, **changes):
    shape = EncoderShape(pooled_dim=12, dim=8, width=4, **changes)
    streams = Streams(seed)
    return make_encoder(shape, shared=streams.draw("projection"), own=streams.draw("adapter", client=client))


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
    one, two, other = encoder(client=1), encoder(client=2), encoder(seed=5)
    pooled = numbers(3, 12)
    assert torch.equal(one.public(pooled), two.public(pooled))
    assert not torch.equal(one.public(pooled), other.public(pooled))
    assert not torch.equal(one.adapter.down.weight, two.adapter.down.weight)
    trained = [name for name, parameter in one.named_parameters() if parameter.requires_grad]
    assert trained == ["adapter.down.weight", "adapter.up.weight"]


def test_the_public_path_bypasses_the_adapter_and_can_be_scaled():
    model, doubled = encoder(), encoder(projection_scale=2.0)
    pooled = numbers(3, 12)
    public = model.public(pooled)
    torch.nn.init.ones_(model.adapter.up.weight)
    assert torch.equal(public, model.public(pooled))
    assert not torch.equal(model.eval()(public), public)
    torch.testing.assert_close(doubled.public(pooled), 2 * public)


def test_an_orthogonal_projection_keeps_angles():
    weight = encoder(projection="orthogonal").projection.weight
    torch.testing.assert_close(weight @ weight.T, torch.eye(8))
    assert encoder(projection="orthogonal").projection.bias.abs().max() == 0


def test_a_random_projection_has_the_usual_range():
    shape = EncoderShape()
    projection = make_encoder(shape, shared=stream(), own=stream()).projection
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
    first = [p.clone() for p in (*encoder().parameters(), *make_head(8, 3, rng=stream()).parameters())]
    dropout = SeededDropout(0.5)
    dropout.rng = stream()
    dropout(torch.ones(9))
    assert torch.equal(before, torch.random.get_rng_state())
    torch.rand(7)
    second = [*encoder().parameters(), *make_head(8, 3, rng=stream()).parameters()]
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
    model = torch.nn.ModuleList([encoder(), make_head(8, 3, rng=stream(), hidden=(7, 5))])
    seed_dropout(model, stream("round"))
    parts = [part for part in model.modules() if isinstance(part, SeededDropout)]
    assert len(parts) == 3
    assert len({id(part.rng) for part in parts}) == 1
    twin = copy.deepcopy(model)
    assert all(part.rng is None for part in twin.modules() if isinstance(part, SeededDropout))
    assert all(part.rng is not None for part in parts)


def test_gradients_reach_the_adapter_and_the_head_only():
    model, head = encoder(), make_head(8, 3, rng=stream())
    for module in (model, head):
        seed_dropout(module, stream("round"))
    head(model(model.public(numbers(4, 12)))).sum().backward()
    assert model.adapter.up.weight.grad.abs().max() > 0
    assert model.projection.weight.grad is None
    assert all(parameter.grad is not None for parameter in head.parameters())


@pytest.mark.parametrize(
    "wrong", [{"dim": 0}, {"width": -1}, {"projection": "none"}, {"projection_scale": 0.0}]
)
def test_a_shape_that_cannot_be_is_refused(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        EncoderShape(**wrong)


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_a_dropout_that_cannot_be_is_refused(p):
    with pytest.raises(InvalidInput, match="dropout"):
        SeededDropout(p)
