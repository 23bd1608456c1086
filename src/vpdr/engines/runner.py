"""One run from a plan to its folder: start or resume, checkpoint, stop when asked, leave a record."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vpdr.attacks import AttackOrder
from vpdr.engines.build import Federation, build
from vpdr.engines.overhear import Audience, Ears, watch_of
from vpdr.engines.promises import pay_on_disk
from vpdr.engines.replay import attacked
from vpdr.engines.simulate import Course, Watcher, simulate
from vpdr.plan.plan import Plan
from vpdr.privacy import Noise
from vpdr.progress import Progress, quiet
from vpdr.records import RunFolder, finished_record
from vpdr.records.uploads import UploadFolder

CHECKPOINT_SECONDS = 5.0  # a short run is cheaper to repeat than to save


def never() -> bool:
    """A run that nobody stops."""
    return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Company:
    """Who looks over a run's shoulder."""

    loading: Progress = quiet
    watchers: Sequence[Watcher] = ()
    stop: Callable[[], bool] = never
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    attacks: AttackOrder | None = None
    audience: Audience = field(default_factory=Audience)  # of the attacks
    keep_uploads: bool = True  # what the server saw cannot be had again where the noise is secret


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished record, or None for a run that was stopped and can be resumed."""

    record: dict[str, Any] | None
    done: int


def run_plan(plan: Plan, out: Path, *, resume: bool = False, company: Company | None = None) -> Outcome:
    """Run the plan into its folder; a finished one is read back, a stopped one goes on bit for bit."""
    company = company or Company()
    folder = RunFolder(out)
    if resume and folder.record.exists():
        return Outcome(_attacked(plan, folder, company), plan.run.rounds)
    begin = time.perf_counter()
    saved = folder.look(plan, resume=resume)
    # what is wrong with the data or the plan is told before anything is written
    federation = build(plan, company.loading)
    ears = _ears(company, federation, folder)
    folder.prepare(plan, federation.manifest)
    if plan.release.noise == Noise.SYSTEM:
        pay_on_disk(federation.clients, folder.ledgers)
    course = None if saved is None else _restored(federation, saved, ears)
    earlier = 0.0 if saved is None else float(saved["wall_seconds"])

    def save(course: Course) -> None:
        state = _state(federation, course, earlier + time.perf_counter() - begin) | ears.state()
        folder.save_checkpoint(plan, state, [client.ledger for client in federation.clients])

    watchers = [*company.watchers, _Keeper(save, company.checkpoint_seconds).after_round]
    course = simulate(federation, course, watchers, company.stop, ears.hearing())
    if course.done < plan.run.rounds:
        save(course)
        return Outcome(None, course.done)
    ledgers = [client.ledger for client in federation.clients]
    wall_seconds = earlier + time.perf_counter() - begin
    record = finished_record(plan, course.rounds, ledgers, wall_seconds) | ears.result()
    folder.save_ledgers(ledgers)
    folder.save_record(record)
    return Outcome(record, course.done)


def _attacked(plan: Plan, folder: RunFolder, company: Company) -> dict[str, Any]:
    """A finished record; attacks that it lacks are run on its uploads and added to it."""
    record = folder.finished(plan)
    order, done = company.attacks, record.get("attacks", {})
    missing = () if order is None else tuple(kind for kind in order.kinds if kind not in done)
    if order is None or not missing:
        return record
    wanted = dataclasses.replace(order, kinds=missing)
    found = attacked(plan, folder.path, wanted, company.loading, company.audience)
    record["attacks"] = {**done, **found}
    folder.save_record(record)
    return record


def _ears(company: Company, federation: Federation, folder: RunFolder) -> Ears:
    uploads = UploadFolder(folder.path) if company.keep_uploads else None
    if company.attacks is None:
        return Ears(uploads, None)
    return Ears(uploads, watch_of(company.attacks, federation, company.audience, folder.path))


class _Keeper:
    """Saves a checkpoint whenever enough time has gone by."""

    def __init__(self, save: Callable[[Course], None], every: float) -> None:
        self.save, self.every, self.last = save, every, time.perf_counter()

    def after_round(self, course: Course) -> None:
        """Called between rounds, when everything is consistent."""
        if time.perf_counter() - self.last >= self.every:
            self.save(course)
            self.last = time.perf_counter()


def _state(federation: Federation, course: Course, wall_seconds: float) -> dict[str, Any]:
    return {
        "done": course.done,
        "memory": course.memory,
        "rounds": course.rounds,
        "clients": {client.id: client.state() for client in federation.clients},
        "wall_seconds": wall_seconds,
    }


def _restored(federation: Federation, saved: dict[str, Any], ears: Ears) -> Course:
    ears.resume(saved)
    for client in federation.clients:
        client.resume(saved["clients"][client.id])
    return Course(int(saved["done"]), saved["memory"], list(saved["rounds"]))
