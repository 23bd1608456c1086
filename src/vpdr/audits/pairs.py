"""Pairs of neighbouring datasets that are made to be told apart."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.audits.subject import Subject
from vpdr.client import Samples
from vpdr.privacy import Adjacency

_FAR = 8.0  # how far outside of the clip norm a planted sample lies
_SPREAD = 0.3  # of samples around their class, in clip norms
_RARE = 4  # samples that the smallest class has in the pairs about counts


@dataclass(frozen=True, slots=True)
class Pair:
    """Two datasets that differ in one sample, and how."""

    name: str
    words: str
    first: Samples
    second: Samples
    target: Float[Tensor, " d"]  # the sample that was planted

    @property
    def worlds(self) -> tuple[Samples, Samples]:
        """Both datasets."""
        return self.first, self.second


def pairs_for(subject: Subject) -> list[Pair]:
    """Every planted pair that is a pair of neighbours under the subject's adjacency."""
    return [make(subject) for make in _MAKERS[subject.adjacency]]


def crowd(subject: Subject) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Ordinary samples: as many of each class, around centres on the sphere of the clip norm."""
    rng = subject.streams.draw("crowd")
    each = max(2, subject.plan.benchmark.samples // subject.classes)
    centres = torch.randn(subject.classes, subject.dim, generator=rng)
    labels = torch.arange(subject.classes).repeat_interleave(each)
    spread = _SPREAD / subject.dim**0.5 * torch.randn(len(labels), subject.dim, generator=rng)
    vectors: Tensor = subject.radius * (torch.nn.functional.normalize(centres)[labels] + spread)
    return vectors, labels


def _diagonal(subject: Subject) -> Float[Tensor, " d"]:
    """Far out, and in every coordinate alike: each group of coordinates is filled up."""
    return torch.full((subject.dim,), _FAR * subject.radius / subject.dim**0.5)


def _replaced(name: str, words: str, base: tuple[Tensor, Tensor], row: int, new: tuple[Tensor, int]) -> Pair:
    vectors, labels = base
    other, relabelled = vectors.clone(), labels.clone()
    other[row], relabelled[row] = new
    return Pair(name, words, Samples(vectors, labels), Samples(other, relabelled), vectors[row])


def antipodal(subject: Subject) -> Pair:
    """A far sample against its opposite, both of the first class: as far as a clipped mean can move."""
    vectors, labels = crowd(subject)
    vectors[0] = _diagonal(subject)
    words = "one sample far out, against its opposite"
    return _replaced("antipodal", words, (vectors, labels), 0, (-vectors[0], int(labels[0])))


def mislabelled(subject: Subject) -> Pair:
    """An ordinary sample against a far one of the next class under the same label: training feels it."""
    vectors, labels = crowd(subject)
    foreign = vectors[labels == 1].mean(0)
    words = f"one ordinary sample, against one of the next class, {_FAR:g} times as long, under its label"
    return _replaced("mislabelled", words, (vectors, labels), 0, (_FAR * foreign, int(labels[0])))


def relabelled(subject: Subject) -> Pair:
    """The same far sample under one label and under another, in small classes: counts move too."""
    vectors, labels = _rare(subject, _RARE)
    vectors[0] = _diagonal(subject)
    words = f"one far sample, in a class of {_RARE} or in the next"
    return _replaced("relabelled", words, (vectors, labels), 0, (vectors[0].clone(), 1))


def vanishing(subject: Subject) -> Pair:
    """The only sample of its class gets another label: the class is there, or it is not."""
    vectors, labels = _rare(subject, 1)
    return _replaced(
        "vanishing", "the only sample of a class, or none", (vectors, labels), 0, (vectors[0].clone(), 1)
    )


def absent(subject: Subject) -> Pair:
    """A far sample, or none in its place."""
    vectors, labels = crowd(subject)
    vectors[0] = _diagonal(subject)
    return _without_first("absent", "one far sample, or none", vectors, labels)


def last_of_its_class(subject: Subject) -> Pair:
    """The only sample of its class, or none in its place."""
    vectors, labels = _rare(subject, 1)
    return _without_first("last of its class", "the only sample of a class, or none", vectors, labels)


def _rare(subject: Subject, kept: int) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """The crowd with a small first class."""
    vectors, labels = crowd(subject)
    rows = torch.cat([torch.where(labels == 0)[0][:kept], torch.where(labels != 0)[0]])
    return vectors[rows], labels[rows]


def _without_first(name: str, words: str, vectors: Tensor, labels: Tensor) -> Pair:
    rest = Samples(vectors[1:], labels[1:])
    return Pair(name, words, Samples(vectors, labels), rest, vectors[0])


_MAKERS: dict[Adjacency, tuple[Callable[[Subject], Pair], ...]] = {
    Adjacency.REPLACE_SAME_LABEL: (antipodal, mislabelled),
    Adjacency.REPLACE_ONE: (antipodal, mislabelled, relabelled, vanishing),
    Adjacency.ADD_REMOVE: (absent, last_of_its_class),
}
