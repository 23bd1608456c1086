"""Pairs of neighbouring datasets with a planted sample (a canary) that makes them easy to distinguish."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.audits.target import AuditTarget
from vpdr.client import Samples
from vpdr.privacy import Adjacency

_CANARY_SCALE = 8.0  # norm of a canary, in clip norms
_CLASS_STD = 0.3  # standard deviation of samples around their class centre, in clip norms
_RARE_CLASS_SIZE = 4  # samples of the rare class


@dataclass(frozen=True, slots=True)
class NeighbourPair:
    """Two datasets that differ in one sample."""

    name: str
    description: str
    first: Samples
    second: Samples
    canary: Float[Tensor, " d"]

    @property
    def datasets(self) -> tuple[Samples, Samples]:
        """Both datasets."""
        return self.first, self.second


def pairs_for(target: AuditTarget) -> list[NeighbourPair]:
    """All planted pairs that are neighbours under the target's adjacency."""
    return [make(target) for make in _PAIR_FACTORIES[target.adjacency]]


def background_samples(target: AuditTarget) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Balanced classes of samples around centres on the sphere of the clip norm."""
    rng = target.streams.generator("crowd")
    per_class = max(2, target.run_config.benchmark.samples // target.classes)
    centres = torch.randn(target.classes, target.dim, generator=rng)
    labels = torch.arange(target.classes).repeat_interleave(per_class)
    noise = _CLASS_STD / target.dim**0.5 * torch.randn(len(labels), target.dim, generator=rng)
    vectors: Tensor = target.clip_norm * (torch.nn.functional.normalize(centres)[labels] + noise)
    return vectors, labels


def antipodal_canary(target: AuditTarget) -> NeighbourPair:
    """A distant sample against its opposite in the same class: as far as a clipped mean can move."""
    vectors, labels = background_samples(target)
    vectors[0] = _diagonal_canary(target)
    description = "one sample far out, against its opposite"
    return _replace_first("antipodal", description, vectors, labels, -vectors[0], int(labels[0]))


def mislabelled_canary(target: AuditTarget) -> NeighbourPair:
    """A typical sample against a distant one of the next class under the same label: it changes training."""
    vectors, labels = background_samples(target)
    foreign = vectors[labels == 1].mean(0)
    scale = f"{_CANARY_SCALE:g} times as long"
    description = f"one ordinary sample, against one of the next class, {scale}, under its label"
    return _replace_first("mislabelled", description, vectors, labels, _CANARY_SCALE * foreign, int(labels[0]))


def relabelled_canary(target: AuditTarget) -> NeighbourPair:
    """The same distant sample under two labels, in a rare class: counts change too."""
    vectors, labels = _with_rare_class(target, _RARE_CLASS_SIZE)
    vectors[0] = _diagonal_canary(target)
    description = f"one far sample, in a class of {_RARE_CLASS_SIZE} or in the next"
    return _replace_first("relabelled", description, vectors, labels, vectors[0].clone(), 1)


def class_disappears(target: AuditTarget) -> NeighbourPair:
    """The only sample of its class gets another label: the class is present, or it is not."""
    vectors, labels = _with_rare_class(target, 1)
    description = "the only sample of a class, or none"
    return _replace_first("vanishing", description, vectors, labels, vectors[0].clone(), 1)


def sample_removed(target: AuditTarget) -> NeighbourPair:
    """A distant sample, or none."""
    vectors, labels = background_samples(target)
    vectors[0] = _diagonal_canary(target)
    return _remove_first("absent", "one far sample, or none", vectors, labels)


def only_sample_removed(target: AuditTarget) -> NeighbourPair:
    """The only sample of its class, or none."""
    vectors, labels = _with_rare_class(target, 1)
    return _remove_first("last of its class", "the only sample of a class, or none", vectors, labels)


_PAIR_FACTORIES: dict[Adjacency, tuple[Callable[[AuditTarget], NeighbourPair], ...]] = {
    Adjacency.REPLACE_SAME_LABEL: (antipodal_canary, mislabelled_canary),
    Adjacency.REPLACE_ONE: (antipodal_canary, mislabelled_canary, relabelled_canary, class_disappears),
    Adjacency.ADD_REMOVE: (sample_removed, only_sample_removed),
}


def _diagonal_canary(target: AuditTarget) -> Float[Tensor, " d"]:
    """A distant sample with equal coordinates, so that every group of coordinates is clipped."""
    return torch.full((target.dim,), _CANARY_SCALE * target.clip_norm / target.dim**0.5)


def _with_rare_class(target: AuditTarget, size: int) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Background samples, with only `size` samples of the first class."""
    vectors, labels = background_samples(target)
    rows = torch.cat([torch.where(labels == 0)[0][:size], torch.where(labels != 0)[0]])
    return vectors[rows], labels[rows]


def _replace_first(
    name: str,
    description: str,
    vectors: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    new_vector: Float[Tensor, " d"],
    new_label: int,
) -> NeighbourPair:
    other_vectors, other_labels = vectors.clone(), labels.clone()
    other_vectors[0], other_labels[0] = new_vector, new_label
    second = Samples(other_vectors, other_labels)
    return NeighbourPair(name, description, Samples(vectors, labels), second, vectors[0])


def _remove_first(
    name: str, description: str, vectors: Float[Tensor, "n d"], labels: Int[Tensor, " n"]
) -> NeighbourPair:
    second = Samples(vectors[1:], labels[1:])
    return NeighbourPair(name, description, Samples(vectors, labels), second, vectors[0])
