"""Ways to choose the focus coordinates without noise: at random, by what is public, or by looking."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from vpdr.errors import InvalidInput
from vpdr.mechanisms.base import Occasion
from vpdr.mechanisms.scores import between_class_variance, top
from vpdr.mechanisms.selection import Choice
from vpdr.privacy.events import Event, NotPrivate


class _WithoutNoise:
    """Selections whose scores are not perturbed, because they are public, unused, or not private."""

    __slots__ = ()

    @property
    def scale(self) -> float:
        """No noise on any score."""
        return 0.0

    def cost(self, occasion: Occasion) -> tuple[Event, ...]:
        """Nothing."""
        return ()


@dataclass(frozen=True, slots=True)
class RandomSelection(_WithoutNoise):
    """A uniform subset: the control. Guarantee: independent of the data, costs nothing."""

    def choose(self, scores: Float[Tensor, " d"], kept: int, occasion: Occasion) -> Choice:
        """Rank fresh random numbers.

        Gaussian ones: ranking the uniform draws behind the Laplace noise would repeat its choice, seed by
        seed, and make the control look more like the selection than it is.
        """
        return Choice(top(occasion.noise.normal(len(scores)), kept))


@dataclass(frozen=True, slots=True)
class PublicSelection(_WithoutNoise):
    """The coordinates in which the last broadcast separates its classes.

    Guarantee: post-processing of what everybody has already heard, costs nothing.
    """

    def choose(self, scores: Float[Tensor, " d"], kept: int, occasion: Occasion) -> Choice:
        """By between-class variance of the broadcast; at random before anything was heard."""
        if occasion.heard is None:
            return RandomSelection().choose(scores, kept, occasion)
        heard = between_class_variance(occasion.heard)
        if heard.shape != scores.shape:
            raise InvalidInput(
                f"{occasion.client}: the broadcast has {len(heard)} dimensions, the features {len(scores)}"
            )
        return Choice(top(heard, kept))


@dataclass(frozen=True, slots=True)
class OracleSelection(_WithoutNoise):
    """The truly largest scores: what a perfect selection would give. Guarantee: none, not private."""

    def choose(self, scores: Float[Tensor, " d"], kept: int, occasion: Occasion) -> Choice:
        """Look."""
        return Choice(top(scores, kept))

    def cost(self, occasion: Occasion) -> tuple[Event, ...]:
        """All privacy."""
        return (NotPrivate(),)
