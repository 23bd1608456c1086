"""From a picture to a feature and a score: frozen backbone, personal adapter, personal head."""

from vpdr.encoder.adapters import Adapter, SeededDropout, seed_dropout
from vpdr.encoder.cache import cached_pooled
from vpdr.encoder.efficientnet_lite import POOLED_DIM, EfficientNetLite0
from vpdr.encoder.model import PROJECTIONS, FrozenPath, make_head, make_path
from vpdr.encoder.weights import load_lite0

__all__ = [
    "POOLED_DIM",
    "PROJECTIONS",
    "Adapter",
    "EfficientNetLite0",
    "FrozenPath",
    "SeededDropout",
    "cached_pooled",
    "load_lite0",
    "make_head",
    "make_path",
    "seed_dropout",
]
