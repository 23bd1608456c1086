"""The attacks of one run: the registry of attacks, the runner of the configured ones, and its options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from vpdr.attacks.base import Attack, AttackConfig, AttackContext, Reconstructions, ignore_message
from vpdr.attacks.inversion import FeatureInversionAttack
from vpdr.attacks.membership import MembershipAttack
from vpdr.attacks.spaces import attack_input_space
from vpdr.client import Client
from vpdr.config import RunConfig
from vpdr.errors import InvalidInput
from vpdr.federation import Callbacks, Federation, RoundUploads, build, simulate
from vpdr.privacy import NoiseOrigin
from vpdr.records import ReconstructionStore, RunDir, UploadStore
from vpdr.registry import Registry
from vpdr.types import ProgressCallback, Prototypes, no_progress

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


# Attacks on a run: while it runs, and after it is finished. A finished run is attacked by the same training again,
# with the uploads that the server saw.


REPLAY_TOLERANCE = 1e-3  # relative difference of uploads that other processors may cause over a run


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackCallbacks:
    """Where attacks report: a line of text now and then, and their progress."""

    on_message: Callable[[str], None] = ignore_message
    progress: ProgressCallback = no_progress


@dataclass(frozen=True, slots=True)
class AttackObserver:
    """The attacks on a run while it runs, as a `RunObserver`."""

    runner: AttackRunner

    def on_uploads(self, round_uploads: RoundUploads) -> None:
        """Attack the uploads of one round."""
        self.runner(round_uploads)

    def state_dict(self) -> dict[str, Any]:
        """The state of all attacks."""
        return {"attacks": self.runner.state_dict()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue the attacks that the run was started with."""
        if "attacks" not in saved:
            raise InvalidInput(
                "this run was started without attacks; resume with the same options, or use vpdr attack afterwards"
            )
        self.runner.load_state_dict(saved["attacks"])

    def result(self) -> dict[str, Any]:
        """The results of all attacks."""
        return {"attacks": self.runner.result()}


@dataclass(frozen=True, slots=True)
class AttackFactory:
    """Attacks as an `ObserverFactory` of a run, for `RunOptions.observers`."""

    attack_config: AttackConfig
    callbacks: AttackCallbacks = field(default_factory=AttackCallbacks)

    def __call__(self, federation: Federation, run_dir: RunDir) -> AttackObserver:
        """The attacks on this federation."""
        return AttackObserver(make_attack_runner(self.attack_config, federation, self.callbacks, run_dir.path))

    def is_complete(self, record: Mapping[str, Any]) -> bool:
        """Whether a record has the results of all attacks."""
        return set(self.attack_config.kinds) <= set(record.get("attacks", {}))

    def complete(
        self, record: dict[str, Any], config: RunConfig, run_dir: RunDir, progress: ProgressCallback
    ) -> dict[str, Any]:
        """The record with the results of all attacks."""
        return add_missing_attacks(record, config, run_dir, self.attack_config, progress, self.callbacks)


def make_attack_runner(
    attack_config: AttackConfig, federation: Federation, callbacks: AttackCallbacks, run_dir: Path
) -> AttackRunner:
    """The configured attacks on a federation; reconstructions are saved in the run's directory."""
    total_rounds, dim = federation.config.run.rounds, federation.config.model.dim
    beyond = [round for round in attack_config.rounds if round > total_rounds]
    if beyond:
        raise InvalidInput(f"attack rounds must lie in 1..{total_rounds}, got {beyond[0]}; name none for every round")
    store = ReconstructionStore(run_dir)

    def save(found: Reconstructions) -> None:
        store.save(found.round, found.client, found.labels.numpy(), found.inputs.numpy(), images=found.are_images)

    return AttackRunner(
        AttackContext(
            config=attack_config,
            streams=federation.streams.fork("attacks"),
            total_rounds=total_rounds,
            input_space_for=lambda client: attack_input_space(federation.client_setups[client].frozen_encoder, dim),
            on_message=callbacks.on_message,
            progress=callbacks.progress,
            save_reconstructions=save,
        )
    )


def add_missing_attacks(
    record: dict[str, Any],
    config: RunConfig,
    run_dir: RunDir,
    attack_config: AttackConfig,
    progress: ProgressCallback,
    callbacks: AttackCallbacks,
) -> dict[str, Any]:
    """Run the attacks that the record of a finished run lacks, and save the record with their results."""
    done = record.get("attacks", {})
    missing = tuple(kind for kind in attack_config.kinds if kind not in done)
    if not missing:
        return record
    results = attack_finished_run(config, run_dir.path, replace(attack_config, kinds=missing), progress, callbacks)
    record = {**record, "attacks": {**done, **results}}
    run_dir.save_record(record)
    return record


def attack_finished_run(
    config: RunConfig,
    run_dir: Path,
    attack_config: AttackConfig,
    progress: ProgressCallback,
    callbacks: AttackCallbacks,
) -> dict[str, Any]:
    """Attack a finished run.

    Args:
        config: the config of the run.
        run_dir: its directory, with its uploads if its noise was secret.
        attack_config: which attacks, in which rounds.
        progress: called while data are loaded.
        callbacks: where the attacks report.

    Returns:
        The result of each attack by its kind.

    Raises:
        InvalidInput: the run cannot be repeated, or repeating it gives other uploads.
    """
    store = UploadStore(run_dir)
    seeded = config.release.noise != NoiseOrigin.SYSTEM
    if not seeded and not store.rounds():
        raise InvalidInput(
            f"{run_dir} has no uploads and its noise cannot be drawn again; run the plan with its uploads kept"
        )
    if not seeded and config.train.is_private:
        raise InvalidInput(
            "the noise of private training cannot be drawn again, so the encoders of this run are gone; "
            "attack such a plan while it runs, with --attack"
        )
    federation = build(config, progress)
    runner = make_attack_runner(attack_config, federation, callbacks, run_dir)
    last_round = max(attack_config.rounds, default=config.run.rounds)
    rounds_seen = [0]
    simulate(
        federation,
        callbacks=Callbacks(
            get_upload=_RecordedUploads(store, seeded),
            on_uploads=[runner, lambda round_uploads: rounds_seen.append(round_uploads.round)],
            stop=lambda: rounds_seen[-1] >= last_round,
        ),
    )
    return runner.result()


class _RecordedUploads:
    """The uploads of a finished run; where the noise is seeded, the client's release must be equal."""

    def __init__(self, store: UploadStore, seeded: bool) -> None:
        self.store, self.seeded = store, seeded
        self.recorded_rounds = frozenset(store.rounds())
        self._round, self._round_uploads = 0, dict[str, Prototypes]()

    def __call__(self, client: Client, round: int) -> Prototypes | None:
        """What this client sent in this round."""
        replayed = client.release(round) if self.seeded else None
        if not self.recorded_rounds:
            return replayed
        if round != self._round:
            self._round = round
            self._round_uploads = self.store.load(round) if round in self.recorded_rounds else {}
        recorded = self._round_uploads.get(client.id)
        if self.seeded and not _uploads_match(recorded, replayed):
            raise InvalidInput(
                f"the plan run again does not give what {client.id} sent in round {round}; "
                "attack it with the data, weights and library versions of the run"
            )
        return recorded


def _uploads_match(recorded: Prototypes | None, replayed: Prototypes | None) -> bool:
    if recorded is None or replayed is None:
        return recorded is replayed
    if recorded.vectors.shape != replayed.vectors.shape or not torch.equal(recorded.labels, replayed.labels):
        return False
    return bool((recorded.vectors - replayed.vectors).norm() <= REPLAY_TOLERANCE * replayed.vectors.norm())
