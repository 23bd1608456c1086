"""Algorithm 1 as a loop: all clients and the server in one process."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from vpdr.client import Client, evaluate_client
from vpdr.federation.builder import Federation
from vpdr.frameworks import FrameworkState
from vpdr.records import ClientRound, RoundRecord
from vpdr.types import Prototypes


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


def never_stop() -> bool:
    """The default of `Callbacks.stop`."""
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Callbacks:
    """Hooks of `simulate`; none of them may change a client."""

    # the upload of a client in a round; a replay returns recorded ones
    get_upload: Callable[[Client, int], Prototypes | None] = lambda client, round: client.release(round)
    on_uploads: Sequence[Callable[[RoundUploads], None]] = ()  # before the server sees the uploads of a round
    on_round_end: Sequence[Callable[[RunState], None]] = ()
    stop: Callable[[], bool] = never_stop  # asked before each round; True ends the run there


def simulate(federation: Federation, state: RunState | None = None, callbacks: Callbacks = Callbacks()) -> RunState:
    """Run all rounds that remain after `state`, or until `callbacks.stop` returns True."""
    torch.set_num_threads(federation.config.run.threads)
    state = state or RunState(0, federation.server.init_state(), [])
    while state.rounds_done < federation.config.run.rounds and not callbacks.stop():
        run_round(federation, state, callbacks)
        for on_round_end in callbacks.on_round_end:
            on_round_end(state)
    return state


def run_round(federation: Federation, state: RunState, callbacks: Callbacks) -> None:
    """One round of Algorithm 1, and then the evaluation of all clients."""
    round, clients, server = state.rounds_done + 1, federation.clients, federation.server
    names = server.sample_participants(round)
    participants = {client.id: client for client in clients if client.id in names}
    timers, server_timer = {client.id: PhaseTimer() for client in clients}, PhaseTimer()

    uploads: dict[str, Prototypes] = {}
    for name, client in participants.items():  # private prototypes: lines 3 to 12
        with timers[name].phase("prototypes"):
            upload = callbacks.get_upload(client, round)
        if upload is not None:
            uploads[name] = upload
    for on_uploads in callbacks.on_uploads:
        on_uploads(RoundUploads(round, participants, uploads))

    with server_timer.phase("server"):  # global prototypes: line 14
        broadcast, state.server_state = server.aggregate(uploads, state.server_state, round)

    losses: dict[str, dict[str, float]] = {}
    for name, client in participants.items():  # fine-tuning: lines 16 to 23
        with timers[name].phase("finetune"):
            losses[name] = dict(client.finetune(broadcast, round))

    measure_accuracy = federation.config.run.is_evaluation_round(round)
    measured = {
        client.id: ClientRound(
            present=client.id in losses,
            losses=losses.get(client.id, {}),
            **evaluate_client(client, measure_accuracy=measure_accuracy),
            seconds=timers[client.id].seconds,
        )
        for client in clients
    }
    state.round_records.append(RoundRecord(round=round, clients=measured, seconds=server_timer.seconds))
    state.rounds_done = round


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
