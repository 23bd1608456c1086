import pytest

from vpdr.encoder.personal import PROJECTIONS
from vpdr.encoder.zoo import BACKBONES, family_model_spec, model_families
from vpdr.validation import InvalidInput


def test_families_match_the_paper():
    extractors = [family_model_spec("HtFE4", client).backbone for client in range(4)]
    assert extractors == ["resnet18", "resnet34", "vit_tiny", "vit_small"]
    heads = [family_model_spec("HtC4", client) for client in range(4)]
    assert [member.hidden for member in heads] == [(512,), (512, 256), (512, 256, 128), (1024, 512)]
    assert {member.backbone for member in heads} == {"resnet18"}
    assert {family_model_spec("HtFE4", client).width for client in range(4)} == {64}


@pytest.mark.parametrize("name", sorted(model_families()))
def test_every_member_of_a_family_has_valid_settings(name):
    for member in model_families()[name].members:
        assert member.backbone in BACKBONES
        assert member.projection in PROJECTIONS
        assert member.width >= 1
        assert all(width >= 1 for width in member.hidden)
    assert model_families()[name].title


def test_clients_take_members_in_turn():
    assert family_model_spec("HtFE4", 5) == family_model_spec("HtFE4", 1)
    assert family_model_spec("Lite3", 3) == family_model_spec("Lite3", 0)


def test_the_weights_of_lite3_are_in_packages():
    assert all(BACKBONES[member.backbone].package for member in model_families()["Lite3"].members)


def test_an_unknown_family_is_one_line():
    with pytest.raises(InvalidInput, match="family must be one of HtFE4, HtC4, Lite3"):
        family_model_spec("HtFE6", 0)
