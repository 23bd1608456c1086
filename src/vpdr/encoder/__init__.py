"""From a sample to its feature and logits: frozen backbone and projection, personal adapters and head."""

from vpdr.encoder.backbone import Backbone, cached_pooled_features
from vpdr.encoder.personal import (
    PLACEMENTS,
    PROJECTIONS,
    Adapter,
    AdapterConfig,
    BlockAdapterEncoder,
    ChannelAdapter,
    FrozenEncoder,
    FrozenProjection,
    LastAdapterEncoder,
    PersonalEncoder,
    SeededDropout,
    make_encoder,
    make_head,
    make_projection,
    projection_for,
    projection_for_backbone,
    seed_dropout,
    seeded_linear,
)
from vpdr.encoder.preprocess import FeatureInputs, ImageArrayInputs, TokenInputs
from vpdr.encoder.zoo import (
    BACKBONES,
    NORMALISATIONS,
    ModelFamily,
    ModelSpec,
    family_model_spec,
    load_backbone,
    model_families,
)
