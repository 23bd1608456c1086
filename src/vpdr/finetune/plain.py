"""No regulariser: features pass as they are."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from vpdr.finetune.base import Guide


@dataclass(frozen=True, kw_only=True, slots=True)
class Plain:
    """Nothing is added to the framework's losses."""

    idle: ClassVar[bool] = True

    def guide(self, head: nn.Module) -> "PlainGuide":
        """A guide that does nothing."""
        return PlainGuide()


class PlainGuide(Guide):
    """The null object among guides."""

    def reshape(self, z: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        """The feature itself."""
        return z

    def loss(
        self, z: Float[Tensor, "b d"], logits: Float[Tensor, "b c"], weights: Float[Tensor, " b"]
    ) -> Float[Tensor, ""]:
        """Zero."""
        return logits.new_zeros(())

    def follow(self, head: nn.Module) -> None:
        """Nothing to follow."""

    def settle(self, head: nn.Module) -> None:
        """Nothing to settle."""

    def gap(
        self, z: Float[Tensor, "b d"], logits: Float[Tensor, "b c"], weights: Float[Tensor, " b"]
    ) -> Float[Tensor, ""]:
        """Zero: there is no teacher."""
        return logits.new_zeros(())
