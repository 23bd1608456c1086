import numpy as np
import pytest
import torch

from vpdr.encoder import Shape, Trunk, load_backbone, make_encoder, path_of
from vpdr.rng import Streams


@pytest.fixture(scope="session")
def lite0():
    return load_backbone("efficientnet_lite0")


@pytest.fixture(scope="session")
def minilm():
    return load_backbone("minilm")


@pytest.fixture(scope="session")
def vit_tiny():
    return load_backbone("vit_tiny", "random")


@pytest.fixture(scope="session")
def resnet18():
    return load_backbone("resnet18", "random")


def stream(name="x", seed=0):
    return Streams(seed).draw(name)


def pictures(n=2, side=32, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def trunk(backbone, projection="random", dim=16):
    return Trunk(backbone, path_of(backbone, projection, dim, rng=stream("projection")))


def encoder(frozen, adapters="blocks", width=0, dropout=0.0):
    dim = frozen.path.projection.out_features
    return make_encoder(
        Shape(adapters=adapters, width=width, dropout=dropout), dim, frozen, rng=stream("adapter")
    )


def trainable(module):
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def everything(inputs):
    return inputs.batch(torch.arange(len(inputs)))
