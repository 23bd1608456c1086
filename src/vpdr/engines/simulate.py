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
    return Course(0, federation.framework.start(_now(federation, 0, federation.clients)), [])


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
        now = _now(federation, t, [client for client in present if client.id in uploads])
        broadcast, course.memory = federation.framework.generate(list(uploads.values()), course.memory, now)
    losses: dict[str, Mapping[str, float]] = {}
    for client in present:
        with clocks[client.id].phase("finetune"):
            losses[client.id] = client.finetune(broadcast, t)
    measured = {
        client.id: {
            "present": client.id in losses,
            "losses": dict(losses.get(client.id, {})),
            **measures(client),
            "seconds": clocks[client.id].seconds,
        }
        for client in federation.clients
    }
    course.rounds.append({"round": t, "clients": measured, "seconds": clock.seconds})
    course.done = t


def measures(client: Client) -> dict[str, Any]:
    """All metrics of one client that do not depend on the clock."""
    spent = client.ledger.spent
    encoded = client.personal_features(client.shard.train)
    return {
        "accuracy": accuracy(client, encoded),
        "features": features(client, encoded),
        "release": client.diagnosis,
        "epsilon": spent if math.isfinite(spent) else None,
    }


def present_in(federation: Federation, t: int) -> list[Client]:
    """Who takes part: by the schedule where there is one, else by a draw that only seed and round decide."""
    part, clients = federation.plan.participation, federation.clients
    if part.schedule:
        return [client for client in clients if t in part.schedule.get(client.id, ())]
    if part.fraction == 1 and part.dropout == 0:
        return list(clients)
    rng = federation.streams.draw("participation", t=t)
    wanted = math.ceil(part.fraction * len(clients) - 1e-9)
    chosen = set(torch.randperm(len(clients), generator=rng)[:wanted].tolist())
    failing = torch.rand(len(clients), generator=rng) < part.dropout
    return [client for index, client in enumerate(clients) if index in chosen and not bool(failing[index])]


def _now(federation: Federation, t: int, senders: Sequence[Client]) -> Now:
    ids = {client.id: row for row, client in enumerate(federation.clients)}
    return Now(
        t=t,
        classes=federation.classes,
        dim=federation.plan.model.dim,
        streams=federation.streams.apart("server"),
        weights=federation.weights[[ids[client.id] for client in senders]],
    )
