"""The attacks of one run, while it runs and after it is finished.

A finished run is attacked by the same training again, with the uploads that the server saw.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

from vpdr import privacy, registry
from vpdr.attacks import base, inversion, membership
from vpdr.client import Client
from vpdr.config import RunConfig
from vpdr.federation import Callbacks, Federation, RoundUploads, build, simulate
from vpdr.records import AttackResult, ReconstructionStore, RunDir, RunRecord, UploadStore
from vpdr.types import ProgressCallback, Prototypes
from vpdr.validation import InvalidInput, check_known, one_of

ATTACKS: registry.Registry[Callable[[base.AttackContext], base.Attack]] = registry.Registry(
    "attack", {"mia": membership.MembershipAttack, "fsh": inversion.FeatureInversionAttack}
)
REPLAY_TOLERANCE = 1e-3  # relative difference of uploads that other processors may cause over a run


def parse_attack_config(kinds: str, rounds: str | None = None, **options: Any) -> base.AttackConfig:
    """An `AttackConfig` from the texts of a command line: kinds and rounds are separated by commas.

    The options are the other arguments of `AttackConfig`.

    >>> parse_attack_config("fsh,mia", "5,1").rounds
    (1, 5)
    """
    names = tuple(dict.fromkeys(word.strip() for word in kinds.split(",") if word.strip()))
    if not names or any(name not in ATTACKS for name in names):
        raise InvalidInput(f"attacks must be among {', '.join(ATTACKS)}, got {kinds!r}")
    one_of(
        base.ADVERSARY_ENCODERS, phi=options.get("adversary_encoder", base.ADVERSARY_ENCODERS[0])
    )  # as the command line calls it
    try:
        numbers = {int(word) for word in (rounds or "").split(",") if word.strip()}
    except ValueError as error:
        raise InvalidInput(f"attack rounds must be whole numbers such as 1,5,20, got {rounds!r}") from error
    return base.AttackConfig(kinds=names, rounds=tuple(sorted(numbers)), **options)


class AttackRunner:
    """Runs the configured attacks on the uploads of each round, before the server aggregates them.

    It is a `RunObserver`. `kinds` of the config are names in `ATTACKS`; reconstructions are saved in the run's
    directory.

    Guarantee: it changes neither a client nor a random draw of the run, so that a run has the same record
    with and without attacks.
    """

    def __init__(
        self, attack_config: base.AttackConfig, federation: Federation, callbacks: base.AttackCallbacks, run_dir: Path
    ) -> None:
        check_known("attack", attack_config.kinds, ATTACKS)
        total_rounds, dim = federation.config.run.rounds, federation.config.model.dim
        for round in attack_config.rounds:
            if round > total_rounds:
                raise InvalidInput(
                    f"attack rounds must lie in 1..{total_rounds}, got {round}; name none for every round"
                )
        input_space = cache(base.attack_input_space)  # one space for all clients of an architecture
        context = base.AttackContext(
            config=attack_config,
            streams=federation.streams.fork("attacks"),
            total_rounds=total_rounds,
            input_space_for=lambda client: input_space(federation.client_setups[client].frozen_encoder, dim),
            callbacks=callbacks,
            reconstruction_store=ReconstructionStore(run_dir),
        )
        self.config = attack_config
        self.attacks = {kind: ATTACKS[kind](context) for kind in attack_config.kinds}

    def on_uploads(self, round_uploads: RoundUploads) -> None:
        if self.config.includes_round(round_uploads.round) and round_uploads.uploads:
            for attack in self.attacks.values():
                attack.observe(round_uploads)

    def state_dict(self) -> base.CheckpointState:
        states = {kind: attack.state_dict() for kind, attack in self.attacks.items()}
        return {"attacks": {"order": self.config.to_data(), "attacks": states}}

    def load_state_dict(self, saved: base.CheckpointState) -> None:
        """Continue from a checkpoint; raises InvalidInput if it was written with other attacks or options."""
        if "attacks" not in saved:
            raise InvalidInput(
                "this run was started without attacks; resume with the same options, or use vpdr attack afterwards"
            )
        state = saved["attacks"]
        if state["order"] != self.config.to_data():
            raise InvalidInput(
                f"this run was started with the attacks {state['order']}, not {self.config.to_data()}; "
                "resume with the same options, or attack it afterwards with vpdr attack"
            )
        for kind, attack in self.attacks.items():
            attack.load_state_dict(state["attacks"][kind])

    def add_result(self, record: RunRecord) -> RunRecord:
        return replace(record, attacks={kind: attack.result() for kind, attack in self.attacks.items()})


@dataclass(frozen=True, slots=True)
class AttackFactory:
    """Attacks as an `ObserverFactory` of a run, for `RunOptions.observers`."""

    attack_config: base.AttackConfig
    callbacks: base.AttackCallbacks = field(default_factory=base.AttackCallbacks)

    def __call__(self, federation: Federation, run_dir: RunDir) -> AttackRunner:
        return AttackRunner(self.attack_config, federation, self.callbacks, run_dir.path)

    def is_complete(self, record: RunRecord) -> bool:
        return set(self.attack_config.kinds) <= set(record.attacks or {})

    def complete(self, record: RunRecord, config: RunConfig, run_dir: RunDir, progress: ProgressCallback) -> RunRecord:
        """Run the attacks that the record of a finished run lacks, and save the record with their results."""
        if self.is_complete(record):
            return record
        done = record.attacks or {}
        missing = tuple(kind for kind in self.attack_config.kinds if kind not in done)
        attack_config = replace(self.attack_config, kinds=missing)
        results = attack_finished_run(config, run_dir.path, attack_config, progress, self.callbacks)
        record = replace(record, attacks={**done, **results})
        run_dir.save_record(record)
        return record


def attack_finished_run(
    config: RunConfig,
    run_dir: Path,
    attack_config: base.AttackConfig,
    progress: ProgressCallback,
    callbacks: base.AttackCallbacks,
) -> dict[str, AttackResult]:
    """Attack a finished run: the result of each attack by its kind.

    Raises InvalidInput if the run cannot be repeated, or repeating it gives other uploads.
    """
    store = UploadStore(run_dir)
    recorded_rounds = store.rounds()
    seeded = config.release.noise != privacy.NoiseOrigin.SYSTEM
    if not seeded and not recorded_rounds:
        raise InvalidInput(
            f"{run_dir} has no uploads and its noise cannot be drawn again; run the plan with its uploads kept"
        )
    if not seeded and config.train.is_private:
        raise InvalidInput(
            "the noise of private training cannot be drawn again, so the encoders of this run are gone; "
            "attack such a plan while it runs, with --attack"
        )
    load_round = lru_cache(maxsize=1)(store.load)  # its clients are asked for one after the other

    def recorded_upload(client: Client, round: int) -> Prototypes | None:
        """What this client sent in this round; where the noise is seeded, its release must be equal."""
        replayed = client.release(round) if seeded else None
        if not recorded_rounds:
            return replayed
        recorded = load_round(round).get(client.id) if round in recorded_rounds else None
        if seeded and not _uploads_match(recorded, replayed):
            raise InvalidInput(
                f"the plan run again does not give what {client.id} sent in round {round}; "
                "attack it with the data, weights and library versions of the run"
            )
        return recorded

    federation = build(config, progress)
    runner = AttackRunner(attack_config, federation, callbacks, run_dir)
    last_round = max(attack_config.rounds, default=config.run.rounds)
    rounds_seen = [0]
    simulate(
        federation,
        callbacks=Callbacks(
            get_upload=recorded_upload,
            on_uploads=[runner.on_uploads, lambda round_uploads: rounds_seen.append(round_uploads.round)],
            stop=lambda: rounds_seen[-1] >= last_round,
        ),
    )
    return {kind: attack.result() for kind, attack in runner.attacks.items()}


def _uploads_match(recorded: Prototypes | None, replayed: Prototypes | None) -> bool:
    if recorded is None or replayed is None:
        return recorded is replayed
    if recorded.vectors.shape != replayed.vectors.shape or not torch.equal(recorded.labels, replayed.labels):
        return False
    return bool((recorded.vectors - replayed.vectors).norm() <= REPLAY_TOLERANCE * replayed.vectors.norm())
