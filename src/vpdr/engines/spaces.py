"""From a federation to the inputs that a reconstruction attack searches."""

from functools import cache

from vpdr.attacks.folding import folded
from vpdr.attacks.spaces import EmbeddingSpace, PictureSpace, Space
from vpdr.encoder import Trunk
from vpdr.engines.build import Federation


def space_of(federation: Federation, client: str) -> Space:
    """Pictures where the client's samples are pictures; otherwise the public features."""
    trunk = federation.seats[client].trunk
    if trunk is None or not trunk.backbone.pixels:
        return EmbeddingSpace(federation.plan.model.dim)
    return _pictures(trunk)


@cache  # clients of one architecture share one
def _pictures(trunk: Trunk) -> Space:
    return PictureSpace(folded(trunk.backbone), trunk.path)
