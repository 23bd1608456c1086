"""What may be added to local fine-tuning without touching the framework's own losses."""

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn


class Guide(nn.Module, ABC):
    """A regulariser at work on one client's head; all that it remembers is in its `state_dict`."""

    @abstractmethod
    def reshape(self, z: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        """The feature that the framework and the head get to see in training."""

    @abstractmethod
    def loss(
        self, z: Float[Tensor, "b d"], logits: Float[Tensor, "b c"], weights: Float[Tensor, " b"]
    ) -> Float[Tensor, ""]:
        """What is added to L_BASE (Eq. 18), given raw features and the student's logits."""

    @abstractmethod
    def follow(self, head: nn.Module) -> None:
        """Called after every optimiser step."""

    @abstractmethod
    def settle(self, head: nn.Module) -> None:
        """Called once after the last step of every round."""

    @abstractmethod
    def gap(
        self, z: Float[Tensor, "b d"], logits: Float[Tensor, "b c"], weights: Float[Tensor, " b"]
    ) -> Float[Tensor, ""]:
        """The mean absolute difference per logit between what guides and what is guided."""


@runtime_checkable
class Regulariser(Protocol):
    """The settings from which every client gets a guide of its own."""

    idle: ClassVar[bool]  # whether it adds nothing: then it has no settings, and no teacher either

    def guide(self, head: nn.Module) -> Guide:
        """A fresh guide for this head."""
        ...
