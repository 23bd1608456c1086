"""From a sample to its feature and logits: frozen backbone and projection, personal adapters and head."""

from vpdr.encoder.adapters import Adapter, ChannelAdapter, SeededDropout, seed_dropout, seeded_linear
from vpdr.encoder.backbone import Backbone
from vpdr.encoder.cache import cached_pooled_features
from vpdr.encoder.families import ModelFamily, ModelSpec, family_model_spec, model_families
from vpdr.encoder.personal import (
    PLACEMENTS,
    PROJECTIONS,
    AdapterConfig,
    BlockAdapterEncoder,
    FrozenEncoder,
    FrozenProjection,
    LastAdapterEncoder,
    PersonalEncoder,
    make_encoder,
    make_head,
    make_projection,
    projection_for,
    projection_for_backbone,
)
from vpdr.encoder.preprocess import FeatureInputs, ImageArrayInputs, TokenInputs
from vpdr.encoder.zoo import BACKBONES, NORMALISATIONS, load_backbone

__all__ = [
    "BACKBONES",
    "NORMALISATIONS",
    "PLACEMENTS",
    "PROJECTIONS",
    "Adapter",
    "AdapterConfig",
    "Backbone",
    "BlockAdapterEncoder",
    "ChannelAdapter",
    "FeatureInputs",
    "FrozenEncoder",
    "FrozenProjection",
    "ImageArrayInputs",
    "LastAdapterEncoder",
    "ModelFamily",
    "ModelSpec",
    "PersonalEncoder",
    "SeededDropout",
    "TokenInputs",
    "cached_pooled_features",
    "family_model_spec",
    "load_backbone",
    "make_encoder",
    "make_head",
    "make_projection",
    "model_families",
    "projection_for",
    "projection_for_backbone",
    "seed_dropout",
    "seeded_linear",
]
