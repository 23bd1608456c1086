"""Algorithm 1 as a loop: all clients and the server in one process."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from vpdr.client import Client, evaluate_client
from vpdr.federation.builder import Federation
from vpdr.frameworks import FrameworkState
from vpdr.types import Prototypes

RoundRecord: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class RunState:
    """The progress of a run: rounds done, the server's state, one record per round."""

    rounds_done: int
    server_state: FrameworkState
    round_records: list[RoundRecord]


@dataclass(frozen=True, slots=True)
class RoundUploads:
    """The uploads of one round, after privatisation and before aggregation."""

    round: int
    clients: Mapping[str, Client]  # all clients that take part in the round
    uploads: Mapping[str, Prototypes]  # of those that sent something


def release_from_client(client: Client, round: int) -> Prototypes | None:
    """The default source of uploads: the client's own release."""
    return client.release(round)


def never_stop() -> bool:
    """The default of `Callbacks.stop`."""
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Callbacks:
    """Hooks of `simulate`.

    Args:
        get_upload: the upload of a client in a round; a replay returns recorded ones.
        on_uploads: called with the uploads of each round before the server sees them.
        on_round_end: called with the run's state after each round.
        stop: asked before each round; True ends the run there.
    """

    get_upload: Callable[[Client, int], Prototypes | None] = release_from_client
    on_uploads: Sequence[Callable[[RoundUploads], None]] = ()
    on_round_end: Sequence[Callable[[RunState], None]] = ()
    stop: Callable[[], bool] = never_stop


def simulate(federation: Federation, state: RunState | None = None, callbacks: Callbacks = Callbacks()) -> RunState:
    """Run all remaining rounds.

    Args:
        federation: the clients and the server.
        state: where an earlier run was stopped; None for a new run.
        callbacks: hooks; none of them may change a client.

    Returns:
        The state after the last round, or after the round before `callbacks.stop` returned True.
    """
    torch.set_num_threads(federation.config.run.threads)
    state = state or initial_run_state(federation)
    while state.rounds_done < federation.config.run.rounds and not callbacks.stop():
        run_round(federation, state, callbacks)
        for on_round_end in callbacks.on_round_end:
            on_round_end(state)
    return state


def initial_run_state(federation: Federation) -> RunState:
    """The state before the first round."""
    return RunState(0, federation.server.init_state(), [])


def run_round(federation: Federation, state: RunState, callbacks: Callbacks) -> None:
    """One round of Algorithm 1: clients release, the server aggregates, clients fine-tune; then evaluate."""
    round, clients = state.rounds_done + 1, federation.clients
    participants = participating_clients(federation, round)
    timers, server_timer = {client.id: PhaseTimer() for client in clients}, PhaseTimer()
    uploads = _collect_uploads(participants, round, callbacks, timers)
    with server_timer.phase("server"):
        broadcast, state.server_state = federation.server.aggregate(uploads, state.server_state, round)
    losses = _finetune(participants, broadcast, round, timers)
    measured = _evaluate(clients, losses, timers, federation.config.run.is_evaluation_round(round))
    state.round_records.append({"round": round, "clients": measured, "seconds": server_timer.seconds})
    state.rounds_done = round


def participating_clients(federation: Federation, round: int) -> list[Client]:
    """The clients that take part in a round."""
    names = set(federation.server.sample_participants(round))
    return [client for client in federation.clients if client.id in names]


@dataclass(slots=True)
class PhaseTimer:
    """Seconds by phase; the only part of a record in which two equal runs differ."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the body of a `with` statement."""
        begin = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begin


def _collect_uploads(
    participants: Sequence[Client], round: int, callbacks: Callbacks, timers: Mapping[str, PhaseTimer]
) -> dict[str, Prototypes]:
    uploads: dict[str, Prototypes] = {}
    for client in participants:
        with timers[client.id].phase("prototypes"):
            upload = callbacks.get_upload(client, round)
        if upload is not None:
            uploads[client.id] = upload
    for on_uploads in callbacks.on_uploads:
        on_uploads(RoundUploads(round, {client.id: client for client in participants}, uploads))
    return uploads


def _finetune(
    participants: Sequence[Client], broadcast: Any, round: int, timers: Mapping[str, PhaseTimer]
) -> dict[str, dict[str, float]]:
    losses = {}
    for client in participants:
        with timers[client.id].phase("finetune"):
            losses[client.id] = dict(client.finetune(broadcast, round))
    return losses


def _evaluate(
    clients: Sequence[Client],
    losses: Mapping[str, dict[str, float]],
    timers: Mapping[str, PhaseTimer],
    measure_accuracy: bool,
) -> dict[str, RoundRecord]:
    return {
        client.id: {
            "present": client.id in losses,
            "losses": losses.get(client.id, {}),
            **evaluate_client(client, measure_accuracy=measure_accuracy),
            "seconds": timers[client.id].seconds,
        }
        for client in clients
    }
