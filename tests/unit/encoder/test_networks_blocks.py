"""Blocks are found by structure, not by the names of attributes."""

import pytest
import torch
from torch import nn

from vpdr.encoder.networks import find_blocks


class Layer(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(dim), nn.Linear(dim, dim)


class Stage(nn.Module):
    def __init__(self, depth, down=False):
        super().__init__()
        self.anything = nn.Sequential(*(Layer() for _ in range(depth)))
        self.down = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4)) if down else nn.Identity()


class Shortcut(nn.Module):
    """A residual block: most of it is in one Sequential."""

    def __init__(self, has_scale=False):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 4))
        self.shortcut = nn.Sequential(nn.Linear(4, 4))
        if has_scale:
            self.scale = nn.Parameter(torch.ones(4))


def test_the_longest_list_of_equal_modules_wins_over_shorter_ones():
    module = nn.Module()
    module.small = nn.ModuleList(Shortcut() for _ in range(2))
    module.large = nn.ModuleList(Layer() for _ in range(5))
    assert find_blocks(module) == list(module.large)


def test_lists_of_layers_of_several_classes_are_no_blocks():
    assert find_blocks(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))) == []
    assert find_blocks(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))) == []
    assert find_blocks(nn.Linear(4, 4)) == []


def test_blocks_of_all_stages_follow_each_other():
    module = nn.Module()
    module.stages = nn.ModuleList([Stage(1), Stage(3, down=True), Stage(2)])
    expected = [layer for stage in module.stages for layer in stage.anything]
    assert find_blocks(module) == expected
    nested = nn.ModuleList([nn.ModuleList([Layer(), Layer()]), nn.ModuleList([Layer()])])
    assert len(find_blocks(nested)) == 3


def test_the_adapter_of_a_shortcut_block_follows_its_branch():
    blocks = nn.ModuleList(Shortcut() for _ in range(2))
    assert find_blocks(blocks) == [block.body for block in blocks]
    scaled = nn.ModuleList(Shortcut(has_scale=True) for _ in range(2))
    assert find_blocks(scaled) == list(scaled), "the scale would make an adapter on the branch weak"


@pytest.mark.parametrize("wrap", [nn.ModuleList, lambda blocks: nn.Sequential(*blocks)])
def test_either_kind_of_list_is_found(wrap):
    assert len(find_blocks(wrap([Layer(), Layer(), Layer()]))) == 3
