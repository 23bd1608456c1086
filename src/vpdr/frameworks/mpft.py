"""MPFT (Zhang et al., 2025): the server fine-tunes an adapter and a head, clients learn from both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vpdr.checks import fraction, not_negative, positive
from vpdr.errors import InvalidInput
from vpdr.frameworks import ops
from vpdr.frameworks.base import Now, Ordinary, ServerMemory
from vpdr.frameworks.denoise import cleaned
from vpdr.frameworks.pool import pool
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


@dataclass(frozen=True, slots=True)
class Teacher:
    """The server's adapter and head; without parameters as long as there was nothing to train on."""

    parameters: Parameters


@dataclass(frozen=True, kw_only=True, slots=True)
class Mpft(Ordinary):
    """Prototypes of the frozen encoder are the server's training set.

    `summarise=KMeansClusters(rate=0.1)` gives several prototypes per class, as the paper's table has it.
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

    def __post_init__(self) -> None:
        not_negative(weight=self.weight, epochs=self.epochs)
        positive(temperature=self.temperature, batch=self.batch, hidden=self.hidden, reduction=self.reduction)
        fraction(dropout=self.dropout)
        positive(server_lr=self.server_lr)
        not_negative(server_decay=self.server_decay)

    @property
    def encoder(self) -> EncoderKind:
        """Features that no private sample has touched."""
        return EncoderKind.PUBLIC

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
        clear = cleaned(pool(uploads, now), now.classes)
        told = ops.single(clear.each)
        if len(told.labels):
            memory = self._trained(memory, told, now)
        if memory["optimiser"]["steps"] == 0:
            return Teacher({}), memory
        return Teacher({**memory["model"], **_known(clear.overall, now.classes)}), memory

    def _trained(self, memory: ServerMemory, told: Prototypes, now: Now) -> ServerMemory:
        rng = now.streams.draw("mpft/train", t=now.t)
        optimiser = self._optimiser
        working, state = trainable(memory["model"]), memory["optimiser"]
        for _ in range(self.epochs):
            for rows in batches(len(told.labels), self.batch, rng):
                masks = [dropout((len(rows), len(working[name])), self.dropout, rng) for name in _DROPPED]
                logits = _logits(working, told.vectors[rows], *masks)
                state = optimiser.step(working, F.cross_entropy(logits, told.labels[rows]), state)
        return {"model": frozen(working), "optimiser": state}

    @property
    def by_sample(self) -> bool:
        """The teacher judges each sample alone."""
        return True

    def losses(self, step: Step, broadcast: Teacher) -> Losses:
        """Cross-entropy, and the divergence from the teacher on the frozen path's features."""
        if not broadcast.parameters:
            return {"task": ops.task(step), "distil": ops.nothing(step)}
        with torch.no_grad():
            target = (_logits(broadcast.parameters, step.public) / self.temperature).log_softmax(dim=1)
        guess = (step.logits / self.temperature).log_softmax(dim=1)
        divergence = (target.exp() * (target - guess)).sum(dim=1)
        scale = self.weight * (self.temperature**2 if self.kd_tau2 else 1.0)
        if _TRUST in broadcast.parameters:
            divergence = divergence * broadcast.parameters[_TRUST][step.labels]
        return {"task": ops.task(step), "distil": scale * mean(divergence, step.weights)}

    def anchors(self, broadcast: Teacher) -> Prototypes | None:
        """A teacher is no set of prototypes."""
        return None

    def pack(self, broadcast: Teacher) -> dict[str, Tensor]:
        """The parameters by name."""
        return dict(broadcast.parameters)

    def unpack(self, arrays: Mapping[str, Tensor]) -> Teacher:
        """The parameters by name; anything else than one whole teacher is refused, whatever the labels."""
        if arrays:
            _check_teacher(arrays)
        return Teacher(dict(arrays))


_TRUST = "trust"
_WIDE = ("down", "out.weight")
_NAMES = {"down", "up", "hidden.weight", "hidden.bias", "out.weight", "out.bias"}
_DROPPED = ("down", "hidden.weight")  # the layers whose outputs are dropped in training


def _check_teacher(arrays: Mapping[str, Tensor]) -> None:
    """All parameters, of shapes that fit each other; `trust`, if it is there, for every class."""
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    if set(shapes) - {_TRUST} != _NAMES or any(len(shapes[name]) != 2 for name in _WIDE):
        raise InvalidInput(f"expected the parameters of a teacher, got {shapes}")
    (narrow, dim), (classes, hidden) = shapes["down"], shapes["out.weight"]
    expected: dict[str, tuple[int, ...]] = {"down": (narrow, dim)}
    expected |= {"up": (dim, narrow), "hidden.weight": (hidden, dim)}
    expected |= {"hidden.bias": (hidden,), "out.weight": (classes, hidden), "out.bias": (classes,)}
    if shapes != expected | ({_TRUST: (classes,)} if _TRUST in shapes else {}):
        raise InvalidInput(f"expected a teacher of shapes {expected}, got {shapes}")


def _known(overall: Prototypes, classes: int) -> Parameters:
    """How far the teacher is to be followed in each class, where the noise it learnt from is published."""
    if overall.variances is None:
        return {}
    return {_TRUST: ops.class_trust(overall, classes).float()}


def _logits(
    model: Parameters, rows: Float[Tensor, "b d"], narrow: Tensor | float = 1.0, wide: Tensor | float = 1.0
) -> Float[Tensor, "b c"]:
    """The head on adapted features; masks of dropout only in training."""
    adapted = rows + F.linear(F.linear(rows, model["down"]).relu() * narrow, model["up"])
    hidden = F.linear(adapted, model["hidden.weight"], model["hidden.bias"]).relu() * wide
    return F.linear(hidden, model["out.weight"], model["out.bias"])
