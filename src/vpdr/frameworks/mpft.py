"""MPFT (Zhang et al., 2025): the server fine-tunes an adapter and a head, clients learn from both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vpdr.checks import fraction, not_negative, positive
from vpdr.frameworks import ops
from vpdr.frameworks.base import Now, Ordinary, Path, ServerMemory
from vpdr.frameworks.denoise import cleaned
from vpdr.frameworks.pool import pool
from vpdr.frameworks.teacher import HEAD, TRUST, Teacher, adapted, check_teacher, known_trust, scores
from vpdr.frameworks.training import (
    AdamW,
    Parameters,
    batches,
    dropout,
    frozen,
    linear,
    trainable,
    uniform,
)
from vpdr.privacy.terms import EncoderKind
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.reduction import mean
from vpdr.types import Losses, Prototypes, Step


@dataclass(frozen=True, kw_only=True, slots=True)
class Mpft(Ordinary):
    """Prototypes of the frozen encoder are the server's training set.

    `summarise=KMeansClusters(rate=0.1)` gives several prototypes per class, as the paper's table has it.

    With `on_path` the adapter becomes the path on which clients release. It learns, with the head, from the
    first round that has uploads; they are of public features, since nothing was broadcast before. From then
    on it stays as it is, and the head alone goes on learning from uploads that are in the adapter's space
    already. An upload of a client that had not heard of the adapter says so, and is put through it here.
    Clients learn from head and adapter on public features either way.
    """

    weight: float = 0.3  # β
    temperature: float = 4.0  # T
    kd_tau2: bool = False  # whether the distillation is multiplied by T², as the released code does
    epochs: int = 20
    batch: int = 64
    hidden: int = 512
    reduction: int = 8
    dropout: float = 0.1
    server_lr: float = 1e-3
    server_decay: float = 1e-5  # of the weights, decoupled
    summarise: Summariser = ClassMeans()
    on_path: bool = False  # set by `transcript`

    def __post_init__(self) -> None:
        not_negative(weight=self.weight, epochs=self.epochs)
        positive(temperature=self.temperature, batch=self.batch, hidden=self.hidden, reduction=self.reduction)
        fraction(dropout=self.dropout)
        positive(server_lr=self.server_lr)
        not_negative(server_decay=self.server_decay)

    @property
    def encoder(self) -> EncoderKind:
        """Features that no private sample has touched, or that only earlier releases have shaped."""
        return EncoderKind.TRANSCRIPT if self.on_path else EncoderKind.PUBLIC

    def transcript(self) -> "Mpft":
        """The same, with clients that release what the server's adapter shows."""
        return replace(self, on_path=True)

    def path(self, broadcast: Teacher) -> Path | None:
        """The adapter, as soon as there is one."""
        if not self.on_path or not broadcast.parameters:
            return None
        return partial(adapted, broadcast.parameters)

    @property
    def _optimiser(self) -> AdamW:
        return AdamW(rate=self.server_lr, decay=self.server_decay)

    def start(self, now: Now) -> ServerMemory:
        """An adapter that changes nothing, a random head, and an optimiser that has not moved."""
        rng = now.streams.draw("mpft/start")
        narrow = max(1, now.dim // self.reduction)
        model = {
            "down": uniform(narrow, now.dim, fan_in=now.dim, rng=rng),
            "up": torch.zeros(now.dim, narrow),
        }
        model |= linear("hidden", (self.hidden, now.dim), rng) | linear(
            "out", (now.classes, self.hidden), rng
        )
        return {"model": model, "optimiser": self._optimiser.start(model)}

    def generate(
        self, uploads: Sequence[Prototypes], memory: ServerMemory, now: Now
    ) -> tuple[Teacher, ServerMemory]:
        """Some more epochs of the same model on this round's prototypes (Eq. 3)."""
        settled = self.on_path and memory["optimiser"]["steps"] > 0
        if settled:
            uploads = [_lifted(upload, memory["model"]) for upload in uploads]
        clear = cleaned(pool(uploads, now), now.classes)
        told = ops.single(clear.each)
        if len(told.labels):
            memory = self._trained(memory, told, now, head_only=settled)
        if memory["optimiser"]["steps"] == 0:
            return Teacher({}), memory
        return Teacher({**memory["model"], **known_trust(clear.overall, now.classes)}), memory

    def _trained(self, memory: ServerMemory, told: Prototypes, now: Now, *, head_only: bool) -> ServerMemory:
        rng = now.streams.draw("mpft/train", t=now.t)
        optimiser, model = self._optimiser, memory["model"]
        working = trainable({name: model[name] for name in (HEAD if head_only else model)})
        state = memory["optimiser"]
        for _ in range(self.epochs):
            for rows in batches(len(told.labels), self.batch, rng):
                seen = told.vectors[rows]
                if not head_only:
                    seen = adapted(working, seen, self._mask(working["down"], rows, rng))
                logits = scores(working, seen, self._mask(working["hidden.weight"], rows, rng))
                state = optimiser.step(working, F.cross_entropy(logits, told.labels[rows]), state)
        return {"model": {**model, **frozen(working)}, "optimiser": state}

    def _mask(self, layer: Tensor, rows: Tensor, rng: torch.Generator) -> Tensor:
        """Dropout of a layer's outputs."""
        return dropout((len(rows), len(layer)), self.dropout, rng)

    @property
    def by_sample(self) -> bool:
        """The teacher judges each sample alone."""
        return True

    def losses(self, step: Step, broadcast: Teacher) -> Losses:
        """Cross-entropy, and the divergence from the teacher on the frozen path's features."""
        model = broadcast.parameters
        if not model:
            return {"task": ops.task(step), "distil": ops.nothing(step)}
        with torch.no_grad():
            target = (scores(model, adapted(model, step.public)) / self.temperature).log_softmax(dim=1)
        guess = (step.logits / self.temperature).log_softmax(dim=1)
        divergence = (target.exp() * (target - guess)).sum(dim=1)
        scale = self.weight * (self.temperature**2 if self.kd_tau2 else 1.0)
        if TRUST in model:
            divergence = divergence * model[TRUST][step.labels]
        return {"task": ops.task(step), "distil": scale * mean(divergence, step.weights)}

    def anchors(self, broadcast: Teacher) -> Prototypes | None:
        """A teacher is no set of prototypes."""
        return None

    def opinion(self, public: Float[Tensor, "b d"], broadcast: Teacher) -> Float[Tensor, "b c"] | None:
        """What the teacher says, as soon as there is one."""
        model = broadcast.parameters
        return scores(model, adapted(model, public)) if model else None

    def pack(self, broadcast: Teacher) -> dict[str, Tensor]:
        """The parameters by name."""
        return dict(broadcast.parameters)

    def unpack(self, arrays: Mapping[str, Tensor]) -> Teacher:
        """The parameters by name; anything else than one whole teacher is refused, whatever the labels."""
        if arrays:
            check_teacher(arrays)
        return Teacher(dict(arrays))


def _lifted(upload: Prototypes, model: Parameters) -> Prototypes:
    """An upload in the adapter's space; one that is put there has no variances: the adapter bends noise."""
    if upload.on_path:
        return upload
    return Prototypes(adapted(model, upload.vectors), upload.labels, on_path=True)
