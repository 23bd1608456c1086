"""A run from the server's side: one message to each client and round, a checkpoint after each."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from vpdr.flower.post import Post, ServerTerms
from vpdr.flower.progress import Progress
from vpdr.flower.session import Session
from vpdr.plan.plan import Plan
from vpdr.records import RunFolder, finished_record

if TYPE_CHECKING:
    from flwr.serverapp import Grid

Told = Callable[[Mapping[str, Any]], None]


def serve(
    grid: "Grid",
    plan: Plan,
    out: Path,
    *,
    terms: ServerTerms,
    resume: bool = False,
    told: Told = lambda _: None,
) -> dict[str, Any]:
    """Run the plan over a grid and leave its record in `out`; with `resume`, from the last saved round."""
    folder = RunFolder(out)
    if resume and folder.record.exists():
        return folder.finished(plan)
    saved = folder.look(plan, resume=resume)
    folder.prepare(plan)
    earlier = 0.0 if saved is None else float(saved.pop("wall_seconds"))
    begin = time.perf_counter()
    torch.set_num_threads(plan.run.threads)
    post = Post(grid, terms)
    post.gather(plan)
    session = Session(plan, post, _progress(saved, post))
    while session.progress.hop <= plan.run.rounds:
        session.next_message()
        wall = earlier + time.perf_counter() - begin
        state = {**asdict(session.progress), "wall_seconds": wall}
        folder.save_checkpoint(plan, state, [])  # the clients' own ledgers are with the clients
        told(session.progress.diary[-1])
    record = finished_record(plan, session.progress.rounds, session.ledgers, wall)
    record["exchange"] = session.exchange()
    folder.save_ledgers(session.ledgers)
    folder.save_record(record)
    return record


def _progress(saved: dict[str, Any] | None, post: Post) -> Progress:
    if saved is None:
        return Progress(names=tuple(sorted(post.nodes)))
    saved.pop("identity")
    return Progress(**{**saved, "names": tuple(saved["names"])})
