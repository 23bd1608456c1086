"""What is kept of a run: its shape, and how far it is from what each world would have sent."""

from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.audits.subject import Told, Transcript
from vpdr.audits.worlds import Trial
from vpdr.types import Prototypes

Shape: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """One run as an attacker remembers it."""

    world: int
    shape: Shape
    possible: tuple[bool, bool]  # whether each world would have sent this shape
    distances: Float[Tensor, "2 t p"] | None = None  # squared; None where the shapes cannot be compared
    between: Float[Tensor, "t p"] | None = None  # of the two expectations, squared
    average: Float[Tensor, " k"] | None = None  # of all that was sent, where all rounds have one shape
    last: Float[Tensor, " k"] | None = None
    energy: float = 0.0
    width: int = 0  # numbers in a row


def evidence(trial: Trial, radius: float) -> Evidence:
    """What a run shows; the raw uploads are not needed any more."""
    sent = trial.told.sent
    shape = shape_of(sent)
    possible = shape_of(trial.expected[0].sent) == shape, shape_of(trial.expected[1].sent) == shape
    if not all(possible) or not all(shape):
        return Evidence(world=trial.world, shape=shape, possible=possible)
    rows = _padded(trial.told, radius)
    first, second = (_padded(each, radius) for each in trial.expected)
    return Evidence(
        world=trial.world,
        shape=shape,
        possible=possible,
        distances=torch.stack([(rows - each).square().sum(2) for each in (first, second)]),
        between=(first - second).square().sum(2),
        average=rows[: len(sent)].mean(0).flatten() if len(set(shape)) == 1 else None,
        last=seen(sent[-1], radius).flatten(),
        energy=float(rows.square().mean()),
        width=rows.shape[2],
    )


def shape_of(transcript: Transcript) -> Shape:
    """How many prototypes of which classes were sent in each round."""
    return tuple(tuple(upload.labels.tolist()) for upload in transcript)


def seen(upload: Prototypes, radius: float) -> Float[Tensor, "p k"]:
    """An upload as numbers with noise of equal size: published variances give noise and counts away."""
    vectors = upload.vectors.double()
    if upload.variances is None:
        return vectors
    stds = upload.variances.double().clamp(min=1e-300).sqrt()[:, None]
    return torch.cat([vectors, torch.full_like(stds, radius)], dim=1) / stds


def _padded(told: Told, radius: float) -> Float[Tensor, "t p k"]:
    """All rounds as one block; what has fewer rows or columns is filled up, in every world alike."""
    blocks = [seen(upload, radius) for upload in (*told.sent, *told.kept)]
    width = max(block.shape[1] for block in blocks)
    wide = [torch.nn.functional.pad(block, (0, width - block.shape[1])) for block in blocks]
    return torch.nn.utils.rnn.pad_sequence(wide, batch_first=True)
