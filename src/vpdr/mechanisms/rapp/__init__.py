"""RAPP: class sums around released centres, in stages, for a guarantee that holds end to end."""

from vpdr.mechanisms.rapp.geometry import Geometry, release_dim
from vpdr.mechanisms.rapp.mechanism import Rapp
from vpdr.mechanisms.rapp.stages import SHARES, Stages, parsed_shares

__all__ = ["SHARES", "Geometry", "Rapp", "Stages", "parsed_shares", "release_dim"]
