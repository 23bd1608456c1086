"""Personal encoders: their sizes, what they share, and their features before training."""

import copy

import pytest
import torch

from tests.unit.encoder.conftest import (
    count_trainable,
    full_batch,
    make_frozen_encoder,
    make_personal_encoder,
    random_images,
    stream,
)
from vpdr.encoder.personal import AdapterConfig, LastAdapterEncoder, make_encoder, make_head, projection_for
from vpdr.encoder.zoo import load_backbone
from vpdr.validation import InvalidInput

# backbone, width, classes -> adapters, total, frozen projection: as in the specification
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
    backbones = {}

    def load(name):
        if name not in backbones:
            backbones[name] = load_backbone(name, "random")
        return backbones[name]

    return load


@pytest.mark.parametrize(("name", "width", "classes", "adapters", "total", "frozen"), TABLE)
def test_trainable_parameters_are_those_of_the_table(loaded, name, width, classes, adapters, total, frozen):
    frozen_encoder = make_frozen_encoder(loaded(name), dim=512)
    personal = make_personal_encoder(frozen_encoder, width=width)
    head = make_head(512, classes, rng=stream())
    assert count_trainable(personal) == adapters
    assert count_trainable(personal) + count_trainable(head) == total
    assert sum(p.numel() for p in frozen_encoder.projection.parameters()) == frozen
    assert count_trainable(frozen_encoder.projection) == count_trainable(frozen_encoder.backbone.network) == 0


@pytest.mark.parametrize(("name", "width"), [("vit_tiny", 8), ("vit_small", 16), ("resnet18", 64)])
def test_the_default_width_is_that_of_the_paper(loaded, name, width):
    frozen_encoder = make_frozen_encoder(loaded(name))
    assert count_trainable(make_personal_encoder(frozen_encoder, width=0)) == count_trainable(
        make_personal_encoder(frozen_encoder, width=width)
    )


def test_roberta_has_one_adapter_as_in_the_paper_or_one_a_block(loaded):
    frozen_encoder = make_frozen_encoder(loaded("roberta_base"))
    assert list(make_personal_encoder(frozen_encoder).adapters) == ["11"]
    assert len(make_personal_encoder(frozen_encoder, adapters="all-blocks").adapters) == 12


@pytest.mark.parametrize("dim", [256, 512, 1024])
@pytest.mark.parametrize("projection", ["random", "orthogonal", "train"])
def test_personal_features_are_the_public_ones_before_training(lite0, dim, projection):
    frozen_encoder = make_frozen_encoder(lite0.with_pixels(64), projection, dim)
    inputs = full_batch(frozen_encoder.backbone.make_inputs(random_images()))
    pooled = frozen_encoder.backbone.features(inputs)
    public = frozen_encoder.projection(pooled)
    assert public.shape == (2, dim)
    for adapters, batch in (("blocks", inputs), ("last", pooled)):
        assert torch.equal(make_personal_encoder(frozen_encoder, adapters).eval()(public, batch).detach(), public)
    torch.testing.assert_close(
        frozen_encoder.projection(frozen_encoder.backbone.pooled_features(random_images())), public
    )


@pytest.mark.parametrize("name", ["lite0", "vit_tiny", "resnet18"])
def test_a_copy_shares_what_is_frozen_and_owns_what_it_trains(request, name):
    first = make_personal_encoder(make_frozen_encoder(request.getfixturevalue(name), "train"))
    second = copy.deepcopy(first)
    assert second.frozen_encoder is first.frozen_encoder
    for one, two in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, two)
        assert one.data_ptr() != two.data_ptr()
    names = set(first.state_dict())
    assert len(names) == 2 * len(first.adapters) + len(list(first.projection.parameters()))
    assert all(key.startswith(("adapters.", "projection.")) for key in names)


def test_a_client_trains_its_own_projection_and_the_public_one_does_not_change(lite0):
    frozen_encoder = make_frozen_encoder(lite0.with_pixels(32), "train")
    before = frozen_encoder.projection.linear.weight.clone()
    inputs = full_batch(frozen_encoder.backbone.make_inputs(random_images()))
    pooled = frozen_encoder.backbone.pooled_features(random_images())
    for adapters, batch in (("blocks", inputs), ("last", pooled)):
        personal = make_personal_encoder(frozen_encoder, adapters).eval()
        optimiser = torch.optim.SGD(personal.parameters(), lr=0.1)
        personal(torch.zeros(2, 16), batch).sum().backward()
        optimiser.step()
        assert personal.needs_inputs
        assert not torch.equal(personal.projection.weight, before)
    assert torch.equal(frozen_encoder.projection.linear.weight, before)


def test_one_adapter_after_the_projection_needs_no_backbone_and_no_inputs():
    personal = make_encoder(AdapterConfig(width=4), 8, rng=stream())
    assert isinstance(personal, LastAdapterEncoder)
    assert not personal.needs_inputs
    x = torch.randn(3, 8, generator=stream("x"))
    assert torch.equal(personal.eval()(x), x)
    assert count_trainable(personal) == 64


def test_dropout_inside_the_blocks_draws_from_the_generator_of_the_client(vit_tiny):
    from vpdr.encoder.personal import seed_dropout

    frozen_encoder = make_frozen_encoder(vit_tiny.with_pixels(32))
    personal = make_personal_encoder(frozen_encoder, dropout=0.5).train()
    for adapter in personal.adapters.values():
        torch.nn.init.ones_(adapter.up.weight)
    inputs = full_batch(frozen_encoder.backbone.make_inputs(random_images()))
    with pytest.raises(InvalidInput, match="call seed_dropout first"):
        personal(torch.zeros(2, 16), inputs)
    features = []
    for name in ("a", "a", "b"):
        seed_dropout(personal, stream(name))
        features.append(personal(torch.zeros(2, 16), inputs).detach())
    assert torch.equal(features[0], features[1])
    assert not torch.equal(features[0], features[2])


def test_invalid_settings_and_missing_inputs_are_one_line(lite0):
    with pytest.raises(InvalidInput, match="adapters must be one of last, blocks, all-blocks"):
        AdapterConfig(adapters="everywhere")
    with pytest.raises(InvalidInput, match="need a backbone"):
        make_encoder(AdapterConfig(adapters="blocks"), 8, rng=stream())
    with pytest.raises(InvalidInput, match="needs the inputs of the samples"):
        make_personal_encoder(make_frozen_encoder(lite0))(torch.zeros(2, 16))


def test_equal_shapes_get_equal_projections_from_one_stream(lite0):
    first, second = (projection_for(lite0.info, "train", 8, rng=stream("projection")) for _ in range(2))
    assert torch.equal(first.linear.weight, second.linear.weight)
