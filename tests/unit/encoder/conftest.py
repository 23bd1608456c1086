import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from vpdr.encoder.personal import AdapterConfig, FrozenEncoder, make_encoder, projection_for
from vpdr.encoder.zoo import load_backbone
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
    return Streams(seed).generator(name)


def random_images(count=2, size=32, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def make_frozen_encoder(backbone, projection="random", dim=16):
    return FrozenEncoder(backbone, projection_for(backbone.info, projection, dim, rng=stream("projection")))


def make_personal_encoder(frozen_encoder, adapters="blocks", width=0, dropout=0.0):
    dim = frozen_encoder.projection.linear.out_features
    return make_encoder(
        AdapterConfig(adapters=adapters, width=width, dropout=dropout), dim, frozen_encoder, rng=stream("adapter")
    )


def count_trainable(module):
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def full_batch(inputs):
    return inputs.batch(torch.arange(len(inputs)))


def save_tokeniser(directory, **options):
    """A tokeniser of 60 words, saved as transformers does."""
    words = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", *(f"w{number}" for number in range(60))]
    tokeniser = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokeniser.pre_tokenizer = Whitespace()
    tokeniser.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 2)])
    names = {"cls_token": "[CLS]", "pad_token": "[PAD]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    PreTrainedTokenizerFast(tokenizer_object=tokeniser, **names, **options).save_pretrained(directory)
