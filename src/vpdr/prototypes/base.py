"""What every rule for making prototypes must state."""

from typing import ClassVar, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.privacy.terms import Adjacency, Basis
from vpdr.types import Summary


class NoSensitivity(InvalidInput):
    """The rule has no finite bound under this adjacency, so no noise can make it private."""


@runtime_checkable
class Summariser(Protocol):
    """Turns clipped features into prototypes, and bounds what one sample can do to them.

    Guarantee: let s be `sensitivity(adjacency, R, sizes)` for a summary of features of norm at most R.
    Between neighbours, Σ over rows of |change of row|² / s² is at most 1; where `hides_counts`, the sum
    also holds |change of size|² / (s/R)². So noise of std σ·s on each row, and of σ·s/R on each size, is one
    Gaussian event of multiplier σ. Where no such s exists, `sensitivity` raises `NoSensitivity`.
    """

    basis: ClassVar[Basis]  # whether the bound is proved, or only as published

    def __call__(self, vectors: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> Summary:
        """The prototypes, or what they are computed from, before noise."""
        ...

    def sensitivity(
        self, adjacency: Adjacency, clip_norm: float, sizes: Int[Tensor, " p"]
    ) -> Float[Tensor, " p"]:
        """The unit of noise of each row."""
        ...

    @staticmethod
    def hides_counts(adjacency: Adjacency) -> bool:
        """Whether sizes are private and must be released with noise of their own."""
        ...

    def finish(self, vectors: Float[Tensor, "p d"], sizes: Float[Tensor, " p"]) -> Float[Tensor, "p d"]:
        """From noisy rows and (noisy) sizes to prototypes; post-processing, so it costs nothing."""
        ...

    def variances(self, stds: Float[Tensor, " p"], sizes: Float[Tensor, " p"]) -> Float[Tensor, " p"] | None:
        """The noise per coordinate of each finished row, where it may be published; post-processing."""
        ...


def only_for_same_label(adjacency: Adjacency, what: str, why: str) -> None:
    """Refuse an adjacency under which `what` cannot be bounded."""
    if adjacency is not Adjacency.REPLACE_SAME_LABEL:
        raise NoSensitivity(f"{what} have no sensitivity under {adjacency}: {why}; use class sums")


class CountsInTheOpen:
    """What rules for public counts share: sizes set the noise, and a noisy row is the prototype."""

    __slots__ = ()

    @staticmethod
    def hides_counts(adjacency: Adjacency) -> bool:  # noqa: ARG004 - the protocol asks for it
        """Counts are taken as public."""
        return False

    def finish(self, vectors: Float[Tensor, "p d"], sizes: Float[Tensor, " p"]) -> Float[Tensor, "p d"]:
        """Nothing is left to do."""
        return vectors

    def variances(self, stds: Float[Tensor, " p"], sizes: Float[Tensor, " p"]) -> Float[Tensor, " p"] | None:
        """Not published: the noise would tell the counts to a server that is not given them."""
        return None
