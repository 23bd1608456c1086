"""The rounds of one run, message by message."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.engines.build import build
from vpdr.engines.server import Server
from vpdr.errors import InvalidInput
from vpdr.flower.errand import Answer, Errand
from vpdr.flower.post import Post, TooFew
from vpdr.flower.progress import Progress
from vpdr.flower.uploads import Facts, Gate, facts_of
from vpdr.plan.combinations import framework_of
from vpdr.plan.plan import Plan
from vpdr.privacy import Ledger
from vpdr.types import Prototypes


class Session:
    """What a server does between two checkpoints."""

    def __init__(self, plan: Plan, post: Post, progress: Progress) -> None:
        self.plan, self.post, self.progress = plan, post, progress
        self.framework = framework_of(plan, plan.framework.kind)
        self.weights: Float[Tensor, "m c"] | None = None

    @property
    def ledgers(self) -> list[Ledger]:
        """What is known of each client's releases."""
        return [self.progress.ledger(self.plan, name) for name in self.progress.names]

    @property
    def server(self) -> Server:
        """Before anybody has said how many classes there are, it only knows who is present."""
        progress = self.progress
        if self.weights is None or self.weights.shape[1] != progress.classes:
            self.weights = weights_of(self.plan, progress.names, progress.classes)
        return Server(
            plan=self.plan,
            framework=self.framework,
            names=progress.names,
            classes=progress.classes,
            weights=self.weights,
        )

    def next_message(self) -> None:
        """Ask everybody, close the last round, open the next."""
        progress, hop, begin = self.progress, self.progress.hop + 1, time.perf_counter()
        present = self.server.present(hop) if hop <= self.plan.run.rounds else []
        self.post.meet(self.plan)
        answers, missing = self.post.ask(self._errands(hop, present))
        seconds = {"exchange": time.perf_counter() - begin}
        facts, dropped = self._checked(answers)
        uploads = self._admitted(answers, facts, dropped)
        silent = {name: facts[name].why for name in facts if facts[name].why}
        self._require(len(facts) - len(silent), present, {**missing, **dropped, **silent})
        progress.hop = hop
        for name, heard in facts.items():
            progress.hear(self.plan, name, heard)
        if hop > 1:
            took = progress.diary[-1]["seconds"]["server"]
            progress.rounds.append(progress.closed_round(set(facts), took))
        progress.diary.append(
            {
                "message": hop,
                "answered": len(facts),
                "missing": missing,
                "dropped": dropped,
                "silent": silent,
                "seconds": seconds,
            }
        )
        progress.learners = [name for name in present if name in facts]
        begin = time.perf_counter()
        if hop <= self.plan.run.rounds:
            self._generate(uploads)
        seconds["server"] = time.perf_counter() - begin

    def _errands(self, hop: int, present: Sequence[str]) -> dict[str, Errand]:
        """To all who have something to do, and to those of whom nothing is known yet."""
        made = {}
        for name in self.progress.names:
            learn, release = name in self.progress.learners, name in present
            if learn or release or name not in self.progress.told:
                made[name] = Errand(
                    run=self.progress.run,
                    hop=hop,
                    plan=self.plan,
                    learn=learn,
                    release=release,
                    known=len(self.progress.ledger(self.plan, name).entries),
                    broadcast=self.progress.broadcast if learn else {},
                )
        return made

    def _checked(self, answers: Mapping[str, Answer]) -> tuple[dict[str, Facts], dict[str, str]]:
        """The facts of those whose answer is one; everybody must speak of the same classes."""
        found = {name: facts for name, answer in answers.items() if (facts := facts_of(answer)) is not None}
        dropped = {name: "facts" for name in answers if name not in found}
        if not self.progress.classes and found:
            self.progress.classes = Counter(facts.classes for facts in found.values()).most_common(1)[0][0]
        strange = [name for name, facts in found.items() if facts.classes != self.progress.classes]
        dropped |= dict.fromkeys(strange, "number of classes")
        return {name: facts for name, facts in found.items() if name not in strange}, dropped

    def _admitted(
        self, answers: Mapping[str, Answer], facts: dict[str, Facts], dropped: dict[str, str]
    ) -> dict[str, Prototypes]:
        """The uploads that can be used; whose cannot is dropped with all that it told."""
        gate = Gate(
            classes=self.progress.classes, dim=self.plan.model.dim, most_norm=self.post.terms.most_norm
        )
        uploads = {name: answers[name].upload for name in facts}
        admitted = {}
        for name, upload in uploads.items():
            fault = None if upload is None else gate.fault(upload)
            if fault is not None:
                dropped[name] = fault
                del facts[name]
            elif upload is not None:
                admitted[name] = upload
        return admitted

    def _require(self, valid: int, present: Sequence[str], absent: Mapping[str, str]) -> None:
        needed = min(self.post.terms.minimum, len(present) or len(self.progress.learners))
        if valid < needed:
            why = ", ".join(f"{name}: {words}" for name, words in sorted(absent.items()))
            raise TooFew(
                f"message {self.progress.hop + 1}: {valid} valid answers, {needed} are needed ({why}); "
                "the run stops here and can be resumed"
            )

    def _generate(self, uploads: Mapping[str, Prototypes]) -> None:
        progress, server = self.progress, self.server
        memory = progress.memory if progress.hop > 1 else server.start()
        broadcast, progress.memory = server.generate(uploads, memory, progress.hop)
        progress.broadcast = self.framework.pack(broadcast)

    def exchange(self) -> dict[str, Any]:
        """Who was missing or dropped, message by message, and why."""
        diary = self.progress.diary
        return {
            "engine": "flower",
            "run": self.progress.run,
            "messages": diary,
            "missing": sum(len(each["missing"]) for each in diary),
            "dropped": sum(len(each["dropped"]) for each in diary),
            "turned_away": sorted(self.post.turned_away.values()),
            "too_late": sorted(set(self.post.nodes) - set(self.progress.names)),
        }


def weights_of(plan: Plan, names: Sequence[str], classes: int) -> Float[Tensor, "m c"]:
    """Public weights: all alike, or the sizes of a benchmark that the server itself can load."""
    if plan.weights.kind == "uniform" or not classes:
        return torch.ones(len(names), classes)
    federation = build(plan)
    rows = {client.id: row for row, client in enumerate(federation.clients)}
    if not set(names) <= set(rows):
        raise InvalidInput(
            f"weights {plan.weights.kind} need clients of the plan's benchmark, got {list(names)}"
        )
    return federation.weights[[rows[name] for name in names]]
