"""From a sample to a feature and a score: frozen backbone, personal adapters, personal head."""

from vpdr.encoder.adapters import Adapter, ChannelAdapter, SeededDropout, seed_dropout
from vpdr.encoder.backbone import Backbone
from vpdr.encoder.cache import cached_pooled
from vpdr.encoder.families import Family, Member, families, family_member
from vpdr.encoder.model import PROJECTIONS, FrozenPath, Trunk, make_head, make_path, path_from, path_of
from vpdr.encoder.personal import PLACEMENTS, LastEncoder, PersonalEncoder, Shape, make_encoder
from vpdr.encoder.pictures import Frames
from vpdr.encoder.registry import BACKBONES
from vpdr.encoder.tokens import Tokens
from vpdr.encoder.vectors import Vectors
from vpdr.encoder.weights import NORMALISATIONS, load_backbone

__all__ = [
    "BACKBONES",
    "NORMALISATIONS",
    "PLACEMENTS",
    "PROJECTIONS",
    "Adapter",
    "Backbone",
    "ChannelAdapter",
    "Family",
    "Frames",
    "FrozenPath",
    "LastEncoder",
    "Member",
    "PersonalEncoder",
    "SeededDropout",
    "Shape",
    "Tokens",
    "Trunk",
    "Vectors",
    "cached_pooled",
    "families",
    "family_member",
    "load_backbone",
    "make_encoder",
    "make_head",
    "make_path",
    "path_from",
    "path_of",
    "seed_dropout",
]
