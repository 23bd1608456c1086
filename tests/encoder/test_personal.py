"""Personal encoders: their sizes, what they share, and what they are before they learn."""

import copy

import pytest
import torch

from tests.encoder.conftest import encoder, everything, pictures, stream, trainable, trunk
from vpdr.encoder import Shape, load_backbone, make_encoder, make_head, path_of
from vpdr.encoder.personal import LastEncoder
from vpdr.errors import InvalidInput

# backbone, width, classes -> adapters, total, frozen projection: the table of the specification
TABLE = [
    ("vit_tiny", 8, 10, 36_864, 304_650, 98_816),
    ("vit_tiny", 8, 7, 36_864, 36_864 + 266_247, 98_816),
    ("vit_small", 16, 10, 147_456, 415_242, 197_120),
    ("vit_small", 16, 7, 147_456, 413_703, 197_120),
    ("vit_tiny", 64, 10, 294_912, 562_698, 98_816),
    ("vit_small", 64, 10, 589_824, 857_610, 197_120),
    ("resnet18", 64, 10, 174_080, 441_866, 262_144),
    ("resnet34", 64, 10, 314_368, 582_154, 262_144),
    ("roberta_base", 64, 4, 98_304, 363_012, 393_728),
]


@pytest.fixture(scope="module")
def loaded():
    kept = {}

    def load(name):
        if name not in kept:
            kept[name] = load_backbone(name, "random")
        return kept[name]

    return load


@pytest.mark.parametrize(("name", "width", "classes", "adapters", "total", "frozen"), TABLE)
def test_trainable_parameters_are_those_of_the_table(loaded, name, width, classes, adapters, total, frozen):
    shared = trunk(loaded(name), dim=512)
    personal = encoder(shared, width=width)
    head = make_head(512, classes, rng=stream())
    assert trainable(personal) == adapters
    assert trainable(personal) + trainable(head) == total
    assert sum(p.numel() for p in shared.path.parameters()) == frozen
    assert trainable(shared.path) == trainable(shared.backbone.network) == 0


@pytest.mark.parametrize(("name", "width"), [("vit_tiny", 8), ("vit_small", 16), ("resnet18", 64)])
def test_the_width_is_the_papers_where_none_is_asked_for(loaded, name, width):
    shared = trunk(loaded(name))
    assert trainable(encoder(shared, width=0)) == trainable(encoder(shared, width=width))


def test_roberta_has_one_adapter_as_in_the_paper_or_one_a_block(loaded):
    shared = trunk(loaded("roberta_base"))
    assert list(encoder(shared).adapters) == ["11"]
    assert len(encoder(shared, adapters="all-blocks").adapters) == 12


@pytest.mark.parametrize("dim", [256, 512, 1024])
@pytest.mark.parametrize("projection", ["random", "orthogonal", "train"])
def test_at_the_start_personal_features_are_the_public_ones(lite0, dim, projection):
    shared = trunk(lite0.at(64), projection, dim)
    inputs = everything(shared.backbone.inputs(pictures()))
    pooled = shared.backbone.features(inputs)
    public = shared.path(pooled)
    assert public.shape == (2, dim)
    for adapters, fed in (("blocks", inputs), ("last", pooled)):
        assert torch.equal(encoder(shared, adapters).eval()(public, fed).detach(), public)
    torch.testing.assert_close(shared.path(shared.backbone.pooled(pictures())), public)


@pytest.mark.parametrize("name", ["lite0", "vit_tiny", "resnet18"])
def test_a_copy_shares_what_is_frozen_and_owns_what_it_trains(request, name):
    first = encoder(trunk(request.getfixturevalue(name), "train"))
    second = copy.deepcopy(first)
    assert second.trunk is first.trunk
    for mine, yours in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(mine, yours)
        assert mine.data_ptr() != yours.data_ptr()
    names = set(first.state_dict())
    assert len(names) == 2 * len(first.adapters) + len(list(first.projection.parameters()))
    assert all(key.startswith(("adapters.", "projection.")) for key in names)


def test_a_trained_projection_belongs_to_its_client_and_the_public_one_stays(lite0):
    shared = trunk(lite0.at(32), "train")
    before = shared.path.projection.weight.clone()
    inputs = everything(shared.backbone.inputs(pictures()))
    pooled = shared.backbone.pooled(pictures())
    for adapters, fed in (("blocks", inputs), ("last", pooled)):
        personal = encoder(shared, adapters).eval()
        optimiser = torch.optim.SGD(personal.parameters(), lr=0.1)
        personal(torch.zeros(2, 16), fed).sum().backward()
        optimiser.step()
        assert personal.wants_inputs
        assert not torch.equal(personal.projection.weight, before)
    assert torch.equal(shared.path.projection.weight, before)


def test_one_adapter_after_the_projection_needs_no_backbone_and_no_inputs():
    personal = make_encoder(Shape(width=4), 8, rng=stream())
    assert isinstance(personal, LastEncoder)
    assert not personal.wants_inputs
    x = torch.randn(3, 8, generator=stream("x"))
    assert torch.equal(personal.eval()(x), x)
    assert trainable(personal) == 64


def test_dropout_inside_the_blocks_draws_from_the_clients_stream(vit_tiny):
    from vpdr.encoder import seed_dropout

    shared = trunk(vit_tiny.at(32))
    personal = encoder(shared, dropout=0.5).train()
    for adapter in personal.adapters.values():
        torch.nn.init.ones_(adapter.up.weight)
    inputs = everything(shared.backbone.inputs(pictures()))
    with pytest.raises(InvalidInput, match="call seed_dropout first"):
        personal(torch.zeros(2, 16), inputs)
    made = []
    for name in ("a", "a", "b"):
        seed_dropout(personal, stream(name))
        made.append(personal(torch.zeros(2, 16), inputs).detach())
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_what_cannot_be_built_or_fed_is_one_line(lite0):
    with pytest.raises(InvalidInput, match="adapters must be one of last, blocks, all-blocks"):
        Shape(adapters="everywhere")
    with pytest.raises(InvalidInput, match="need a backbone"):
        make_encoder(Shape(adapters="blocks"), 8, rng=stream())
    with pytest.raises(InvalidInput, match="runs on the samples themselves"):
        encoder(trunk(lite0))(torch.zeros(2, 16))


def test_equal_shapes_get_equal_projections_from_one_stream(lite0):
    first, second = (path_of(lite0, "train", 8, rng=stream("projection")) for _ in range(2))
    assert torch.equal(first.projection.weight, second.projection.weight)
