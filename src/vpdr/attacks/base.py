"""The interface of an attack: its config, its context, and what it returns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from vpdr.attacks.spaces import InputSpace
from vpdr.client import Client, Samples
from vpdr.errors import InvalidInput
from vpdr.federation import RoundUploads
from vpdr.rng import Streams
from vpdr.types import ProgressCallback, no_progress
from vpdr.validation import at_least, one_of

ADVERSARY_ENCODERS = ("client", "initial")


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackConfig:
    """Which attacks to run, in which rounds, and how strong the adversary is.

    Args:
        kinds: names in `ATTACKS`.
        rounds: attacked rounds, counted from 1; every round if empty.
        adversary_encoder: the encoder that the adversary has. `client` is the client's own encoder in that
            round (the paper's assumption, stronger than any real server). `initial` is the public one: the
            frozen encoder. If releases use a broadcast feature map, both are that map.
        likelihood_ratio: membership by likelihood ratios as well, which doubles the cost.
        steps: maximal number of steps of a reconstruction.
        device: torch device of the reconstructions.
        workers: parallel reconstructions on the CPU; 0 means one per core.

    Raises:
        InvalidInput: a value is out of range.

    >>> AttackConfig(kinds=("mia",), rounds=(1, 5)).includes_round(2)
    False
    """

    kinds: tuple[str, ...]
    rounds: tuple[int, ...] = ()
    adversary_encoder: str = "client"
    likelihood_ratio: bool = False
    steps: int = 10_000
    device: str = "cpu"
    workers: int = 0

    def __post_init__(self) -> None:
        one_of(ADVERSARY_ENCODERS, phi=self.adversary_encoder)
        at_least(1, steps=self.steps)
        if any(round < 1 for round in self.rounds):
            raise InvalidInput(f"attack rounds count from 1, got {min(self.rounds)}; use for example 1,5,20")

    def includes_round(self, round: int) -> bool:
        """Whether this round is attacked."""
        return not self.rounds or round in self.rounds

    def to_data(self) -> dict[str, Any]:
        """As plain data, without device and workers, which do not change the results."""
        return {
            "kinds": list(self.kinds),
            "rounds": list(self.rounds),
            "phi": self.adversary_encoder,
            "stronger": self.likelihood_ratio,
            "steps": self.steps,
        }


@dataclass(frozen=True, slots=True)
class Reconstructions:
    """The reconstructed inputs of one client in one round; images have values in [0, 1]."""

    round: int
    client: str
    labels: Int[Tensor, " p"]
    inputs: Float[Tensor, "p *shape"]
    are_images: bool


def ignore_message(message: str) -> None:
    """Do nothing with a message."""


def discard_reconstructions(reconstructions: Reconstructions) -> None:
    """Do nothing with reconstructions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackContext:
    """What an attack may use.

    Args:
        config: the attack's options.
        streams: random streams of the attacks; the run itself uses others.
        total_rounds: number of rounds of the run.
        input_space_for: the input space of a client, created on demand.
        on_message: receives lines of text for the user.
        progress: receives the progress of long computations.
        save_reconstructions: receives all reconstructed inputs.
    """

    config: AttackConfig
    streams: Streams
    total_rounds: int
    input_space_for: Callable[[str], InputSpace]
    on_message: Callable[[str], None] = ignore_message
    progress: ProgressCallback = no_progress
    save_reconstructions: Callable[[Reconstructions], None] = discard_reconstructions


@runtime_checkable
class Attack(Protocol):
    """An adversary that observes the uploads of a run.

    A plug-in is a callable in `ATTACKS` that creates an attack from an `AttackContext`.

    Guarantee: it changes neither a client nor a random draw of the run.
    """

    def observe(self, round_uploads: RoundUploads) -> None:
        """Attack the uploads of one round."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, as tensors and plain data."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""
        ...

    def result(self) -> dict[str, Any]:
        """The results for the record."""
        ...


def adversary_features(client: Client, samples: Samples, adversary_encoder: str) -> Float[Tensor, "n d"]:
    """Features of the samples under the adversary's encoder, in evaluation mode and unclipped."""
    trained = client.release_config.encoder_kind.is_trained_on_private_data
    if trained and adversary_encoder == "initial":
        return samples.frozen_features
    return client.released_features(samples)
