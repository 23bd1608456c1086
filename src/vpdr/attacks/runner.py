"""The attacks of one run: the registry of attacks, the runner of the configured ones, and its options."""

from collections.abc import Callable, Mapping
from typing import Any

from vpdr.attacks.base import Attack, AttackConfig, AttackContext
from vpdr.attacks.inversion import FeatureInversionAttack
from vpdr.attacks.membership import MembershipAttack
from vpdr.errors import InvalidInput
from vpdr.federation import RoundUploads
from vpdr.registry import Registry

ATTACKS: Registry[Callable[[AttackContext], Attack]] = Registry(
    "attack", {"mia": MembershipAttack, "fsh": FeatureInversionAttack}
)


class AttackRunner:
    """Runs the configured attacks on the uploads of each round, before the server aggregates them.

    Guarantee: it changes neither a client nor a random draw of the run, so that a run has the same record
    with and without attacks.

    Args:
        context: what the attacks may use. `context.config.kinds` are names in `ATTACKS`.
    """

    def __init__(self, context: AttackContext) -> None:
        self.config = context.config
        self.attacks = {kind: ATTACKS[kind](context) for kind in context.config.kinds}

    def __call__(self, round_uploads: RoundUploads) -> None:
        """Attack the uploads of one round, if the config includes this round."""
        if self.config.includes_round(round_uploads.round) and round_uploads.uploads:
            for attack in self.attacks.values():
                attack.observe(round_uploads)

    def state_dict(self) -> dict[str, Any]:
        """The config and the state of each attack, for a checkpoint."""
        states = {kind: attack.state_dict() for kind, attack in self.attacks.items()}
        return {"order": self.config.to_data(), "attacks": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint.

        Raises:
            InvalidInput: the checkpoint was written with other attacks or options.
        """
        if state["order"] != self.config.to_data():
            raise InvalidInput(
                f"this run was started with the attacks {state['order']}, not {self.config.to_data()}; "
                "resume with the same options, or attack it afterwards with vpdr attack"
            )
        for kind, attack in self.attacks.items():
            attack.load_state_dict(state["attacks"][kind])

    def result(self) -> dict[str, Any]:
        """The results of each attack, for the record."""
        return {kind: attack.result() for kind, attack in self.attacks.items()}


def parse_attack_config(
    kinds: str,
    rounds: str | None = None,
    *,
    adversary_encoder: str = "client",
    likelihood_ratio: bool = False,
    steps: int = 10_000,
    device: str = "cpu",
    workers: int = 0,
) -> AttackConfig:
    """An `AttackConfig` from the texts of a command line.

    Args:
        kinds: names in `ATTACKS`, separated by commas, such as `fsh,mia`.
        rounds: rounds to attack, such as `1,5,20`; every round if empty.
        adversary_encoder: the adversary's encoder, `client` or `initial`.
        likelihood_ratio: membership by likelihood ratios as well.
        steps: maximal number of steps of a reconstruction.
        device: torch device of the reconstructions.
        workers: parallel reconstructions on the CPU; 0 means one per core.

    Raises:
        InvalidInput: a name is unknown, or a number is out of range.

    >>> parse_attack_config("fsh,mia", "5,1").rounds
    (1, 5)
    """
    names = tuple(dict.fromkeys(word.strip() for word in kinds.split(",") if word.strip()))
    if not names or any(name not in ATTACKS for name in names):
        raise InvalidInput(f"attacks must be among {', '.join(ATTACKS)}, got {kinds!r}")
    return AttackConfig(
        kinds=names,
        rounds=_parse_rounds(rounds or ""),
        adversary_encoder=adversary_encoder,
        likelihood_ratio=likelihood_ratio,
        steps=steps,
        device=device,
        workers=workers,
    )


def _parse_rounds(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    try:
        return tuple(sorted({int(word) for word in words}))
    except ValueError as error:
        raise InvalidInput(f"attack rounds must be whole numbers such as 1,5,20, got {text!r}") from error
