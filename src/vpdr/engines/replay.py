"""Attack a run that is over: the same training again, with the uploads that the server saw.

Nothing private is stored for this. Broadcasts and fine-tuning follow from the uploads, the plan and the
data, so that the encoders of every round come back, also where the noise came from the operating system.
Guarantee: no ledger is charged and nothing new is released.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from vpdr.attacks import AttackOrder, Moment
from vpdr.client import Client
from vpdr.engines.build import Federation, build
from vpdr.engines.overhear import Audience, watch_of
from vpdr.engines.simulate import Hearing, simulate
from vpdr.errors import InvalidInput
from vpdr.plan.plan import Plan
from vpdr.privacy import Noise
from vpdr.progress import Progress
from vpdr.records.uploads import UploadFolder
from vpdr.types import Prototypes

CLOSE = 1e-3  # relative difference that other processors may make over a run


def attacked(
    plan: Plan, run: Path, order: AttackOrder, loading: Progress, audience: Audience
) -> dict[str, Any]:
    """The results of the ordered attacks on the run in this folder."""
    uploads = UploadFolder(run)
    seeded = plan.release.noise != Noise.SYSTEM
    if not seeded and not uploads.rounds():
        raise InvalidInput(
            f"{run} has no uploads and its noise cannot be drawn again; run the plan with its uploads kept"
        )
    if not seeded and plan.train.private:
        raise InvalidInput(
            "the noise of private training cannot be drawn again, so the encoders of this run are gone; "
            "attack such a plan while it runs, with --attack"
        )
    federation = build(plan, loading)
    watch = watch_of(order, federation, audience, run)
    last = max(order.rounds, default=plan.run.rounds)
    done = _Counter()
    transcript = _Transcript(uploads, seeded)
    hearing = Hearing(listeners=[watch, done], voice=transcript)
    simulate(federation, stop=_after(done, last, federation), hearing=hearing)
    return watch.result()


class _Counter:
    """How many rounds were heard."""

    t = 0

    def __call__(self, moment: Moment) -> None:
        self.t = moment.t


def _after(done: _Counter, last: int, federation: Federation) -> Callable[[], bool]:
    limit = min(last, federation.plan.run.rounds)
    return lambda: done.t >= limit


class _Transcript:
    """Says again what was said; a client that can be made to repeat itself must say the same."""

    def __init__(self, uploads: UploadFolder, seeded: bool) -> None:
        self.uploads, self.seeded = uploads, seeded
        self.kept = frozenset(uploads.rounds())
        self._t, self._heard = 0, dict[str, Prototypes]()

    def __call__(self, client: Client, t: int) -> Prototypes | None:
        """What this client sent in this round."""
        again = client.release(t) if self.seeded else None
        if not self.kept:
            return again
        if t != self._t:
            self._t, self._heard = t, self.uploads.heard(t) if t in self.kept else {}
        told = self._heard.get(client.id)
        if self.seeded and not _same(told, again):
            raise InvalidInput(
                f"the plan run again does not give what {client.id} sent in round {t}; "
                "attack it with the data, weights and library versions of the run"
            )
        return told


def _same(told: Prototypes | None, again: Prototypes | None) -> bool:
    if told is None or again is None:
        return told is again
    if told.vectors.shape != again.vectors.shape or not torch.equal(told.labels, again.labels):
        return False
    return bool((told.vectors - again.vectors).norm() <= CLOSE * again.vectors.norm())
