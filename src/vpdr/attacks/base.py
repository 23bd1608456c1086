"""The interface of an attack: its config and its context."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from vpdr import federation, records, rng
from vpdr.attacks.spaces import InputSpace
from vpdr.types import ProgressCallback, no_progress
from vpdr.validation import InvalidInput, at_least, one_of

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
        one_of(ADVERSARY_ENCODERS, adversary_encoder=self.adversary_encoder)
        at_least(1, steps=self.steps)
        if any(round < 1 for round in self.rounds):
            raise InvalidInput(f"attack rounds count from 1, got {min(self.rounds)}; use for example 1,5,20")

    def includes_round(self, round: int) -> bool:
        """Whether a round, counted from 1, is attacked."""
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


def ignore_message(message: str) -> None:
    """The default `on_message`; a named function, because callbacks are sent to other processes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackCallbacks:
    """Where attacks report: a line of text for the user now and then, and the progress of long computations."""

    on_message: Callable[[str], None] = ignore_message
    progress: ProgressCallback = no_progress


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackContext:
    """What an attack may use."""

    config: AttackConfig
    streams: rng.Streams  # of the attacks; the run itself uses others
    total_rounds: int
    input_space_for: Callable[[str], InputSpace]  # of a client, created on demand
    callbacks: AttackCallbacks = field(default_factory=AttackCallbacks)
    reconstruction_store: records.ReconstructionStore | None = None


@runtime_checkable
class Attack(Protocol):
    """An adversary that observes the uploads of a run.

    A plug-in is a callable in `ATTACKS` that creates an attack from an `AttackContext`.

    Guarantee: it changes neither a client nor a random draw of the run.
    """

    def observe(self, round_uploads: federation.RoundUploads) -> None:
        """Attack the uploads of one round."""

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, as tensors and plain data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint."""

    def result(self) -> dict[str, Any]:
        """The results for the record."""
