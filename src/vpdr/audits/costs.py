"""What an audited client would be charged, release by release."""

import dataclasses
import math
from collections.abc import Sequence

from vpdr.audits.pairs import crowd
from vpdr.audits.silence import Silence
from vpdr.audits.subject import Subject
from vpdr.mechanisms import Occasion
from vpdr.privacy import Event
from vpdr.types import Memory

_ROUNDING = 1e-9  # a smaller model may round the same cost another way


def costs(subject: Subject) -> tuple[Event, ...]:
    """The events of all releases, in order; they depend on no sample, so planted ones will do."""
    promise, (vectors, labels) = subject.client.promise, crowd(subject)
    memory: Memory = {}
    events: list[Event] = []
    for t in range(1, subject.releases + 1):
        occasion = Occasion(
            client="audited",
            round=t,
            classes=subject.classes,
            summarise=promise.summarise,
            encoder=promise.encoder,
            noise=Silence(),
            memory=memory,
        )
        made = promise.mechanism.release(vectors, labels, occasion)
        events += made.receipt.events
        memory = made.memory
    return tuple(events)


def same_events(first: Sequence[Event], second: Sequence[Event]) -> bool:
    """Whether two clients were charged the same, in the same order."""
    return len(first) == len(second) and all(map(_same, first, second))


def _same(one: Event, other: Event) -> bool:
    numbers = zip(dataclasses.astuple(one), dataclasses.astuple(other), strict=False)
    return type(one) is type(other) and all(math.isclose(a, b, rel_tol=_ROUNDING) for a, b in numbers)
