"""Frameworks whose broadcast is one set of prototypes."""

from collections.abc import Mapping

from torch import Tensor

from vpdr.frameworks.base import Ordinary
from vpdr.frameworks.wire import packed, unpacked
from vpdr.types import Prototypes


class OneSet(Ordinary):
    """What they share: the broadcast is what clients are drawn to, and what travels."""

    __slots__ = ()

    def anchors(self, broadcast: Prototypes) -> Prototypes | None:
        """The global prototypes."""
        return broadcast

    def pack(self, broadcast: Prototypes) -> dict[str, Tensor]:
        """The global prototypes as named arrays."""
        return packed("global", broadcast)

    def unpack(self, arrays: Mapping[str, Tensor]) -> Prototypes:
        """The global prototypes."""
        return unpacked("global", arrays)
