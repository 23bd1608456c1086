"""All clients in one process: Algorithm 1 as a loop."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from vpdr.attacks import Moment
from vpdr.client import Client
from vpdr.client.measure import accuracy, features
from vpdr.engines.build import Federation
from vpdr.frameworks import Now, ServerMemory
from vpdr.types import Prototypes

RoundRecord: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Course:
    """How far a run has come: rounds done, what the server remembers, what was measured."""

    done: int
    memory: ServerMemory
    rounds: list[RoundRecord]


Watcher: TypeAlias = Callable[[Course], None]
Listener: TypeAlias = Callable[[Moment], None]  # hears the uploads of a round before the server does
Voice: TypeAlias = Callable[[Client, int], Prototypes | None]  # how a client's upload comes about


def release(client: Client, t: int) -> Prototypes | None:
    """The usual voice: the client speaks for itself."""
    return client.release(t)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hearing:
    """Who hears the uploads, and where they come from."""

    listeners: Sequence[Listener] = ()
    voice: Voice = release


@dataclass(slots=True)
class Clock:
    """How long each phase took; the only part of a record that two equal runs do not share."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure what happens inside."""
        begin = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - begin


def simulate(
    federation: Federation,
    course: Course | None = None,
    watchers: Sequence[Watcher] = (),
    stop: Callable[[], bool] = lambda: False,
    hearing: Hearing = Hearing(),
) -> Course:
    """All rounds that are left; watchers see each one and change nothing, `stop` is asked in between."""
    torch.set_num_threads(federation.plan.run.threads)
    course = course or begin(federation)
    while course.done < federation.plan.run.rounds and not stop():
        _round(federation, course, course.done + 1, hearing)
        for watch in watchers:
            watch(course)
    return course


def begin(federation: Federation) -> Course:
    """Before the first round."""
    return Course(0, federation.server.start(), [])


def _round(federation: Federation, course: Course, t: int, hearing: Hearing) -> None:
    """Calculate, upload, generate, download, fine-tune (Alg. 1), then measure."""
    present = present_in(federation, t)
    clocks = {client.id: Clock() for client in federation.clients}
    uploads: dict[str, Prototypes] = {}
    for client in present:
        with clocks[client.id].phase("prototypes"):
            upload = hearing.voice(client, t)
        if upload is not None:
            uploads[client.id] = upload
    for listen in hearing.listeners:
        listen(Moment(t, {client.id: client for client in present}, uploads))
    clock = Clock()
    with clock.phase("server"):
        broadcast, course.memory = federation.server.generate(uploads, course.memory, t)
    losses: dict[str, Mapping[str, float]] = {}
    for client in present:
        with clocks[client.id].phase("finetune"):
            losses[client.id] = client.finetune(broadcast, t)
    measured = {
        client.id: {
            "present": client.id in losses,
            "losses": dict(losses.get(client.id, {})),
            **measures(client, tested=federation.plan.run.measured(t)),
            "seconds": clocks[client.id].seconds,
        }
        for client in federation.clients
    }
    course.rounds.append({"round": t, "clients": measured, "seconds": clock.seconds})
    course.done = t


def measures(client: Client, tested: bool = True) -> dict[str, Any]:
    """All metrics of one client that do not depend on the clock; untested, only those that cost nothing."""
    spent = client.ledger.spent
    found: dict[str, Any] = {"accuracy": {"own": {}, "all": {}}, "features": {}}
    if tested:
        with client.encoding.remembering():
            encoded = client.personal_features(client.shard.train)
            found = {"accuracy": accuracy(client, encoded), "features": features(client, encoded)}
    return {**found, "release": client.diagnosis, "epsilon": spent if math.isfinite(spent) else None}


def present_in(federation: Federation, t: int) -> list[Client]:
    """Who takes part in a round."""
    names = set(federation.server.present(t))
    return [client for client in federation.clients if client.id in names]


def _now(federation: Federation, t: int, senders: Sequence[Client]) -> Now:
    return federation.server.now(t, [client.id for client in senders])
