"""What every attack is given, and what it gives back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from vpdr.attacks.spaces import Space
from vpdr.checks import at_least, one_of
from vpdr.client import Client, Samples
from vpdr.errors import InvalidInput
from vpdr.progress import Progress, quiet
from vpdr.rng import Streams
from vpdr.types import Prototypes

PHI = ("client", "initial")


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackOrder:
    """Which attacks to run, when, and how strong the adversary is.

    `phi` is the encoder that the adversary has: `client` is the client's own at that moment (the paper's
    assumption, stronger than any real server), `initial` is the path that everybody knows: the frozen one,
    and where releases are made on a broadcast path that one, so that both are then the same.
    """

    kinds: tuple[str, ...]
    rounds: tuple[int, ...] = ()  # none: every round
    phi: str = "client"
    stronger: bool = False  # membership by likelihood ratios too, which costs as much again
    steps: int = 10_000  # of a reconstruction, at most
    device: str = "cpu"  # of a reconstruction
    workers: int = 0  # of a reconstruction on a processor; 0 is one a core

    def __post_init__(self) -> None:
        one_of(PHI, phi=self.phi)
        at_least(1, steps=self.steps)
        if any(t < 1 for t in self.rounds):
            raise InvalidInput(f"attack rounds count from 1, got {min(self.rounds)}; use for example 1,5,20")

    def wants(self, t: int) -> bool:
        """Whether this round is attacked."""
        return not self.rounds or t in self.rounds

    def to_data(self) -> dict[str, Any]:
        """As plain data; the device is left out, since it does not decide what is asked."""
        return {
            "kinds": list(self.kinds),
            "rounds": list(self.rounds),
            "phi": self.phi,
            "stronger": self.stronger,
            "steps": self.steps,
        }


@dataclass(frozen=True, slots=True)
class Moment:
    """After privatisation and before aggregation: who is there, and what they have just sent."""

    t: int
    clients: Mapping[str, Client]
    uploads: Mapping[str, Prototypes]


@dataclass(frozen=True, slots=True)
class Gallery:
    """What was reconstructed of one client in one round: values in [0, 1] where they are pictures."""

    t: int
    client: str
    labels: Int[Tensor, " p"]
    inputs: Float[Tensor, "p *shape"]
    pictures: bool


def silent(line: str) -> None:
    """Nobody waits."""


def forgotten(gallery: Gallery) -> None:
    """Nothing is kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """Where an attack takes place: what was ordered, and who hears of it."""

    order: AttackOrder
    streams: Streams
    rounds: int  # of the whole run
    space: Callable[[str], Space]  # of a client; made only for those who search it
    tell: Callable[[str], None] = silent
    progress: Progress = quiet
    keep: Callable[[Gallery], None] = forgotten


@runtime_checkable
class Attack(Protocol):
    """One adversary who watches a run. Guarantee: it changes neither a client nor a draw of the run."""

    def observe(self, moment: Moment) -> None:
        """Attack what was sent in one round."""
        ...

    def state(self) -> dict[str, Any]:
        """All that must survive a stop, as tensors and plain data."""
        ...

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        ...

    def result(self) -> dict[str, Any]:
        """What goes into the record."""
        ...


def seen_through(client: Client, samples: Samples, phi: str) -> Float[Tensor, "n d"]:
    """These samples as the adversary's encoder sees them, in evaluation mode and unclipped."""
    hidden = client.promise.encoder.trained and phi == "initial"
    return samples.public if hidden else client.released_features(samples)
