"""Labelled samples grouped by domain."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt8

from vpdr.errors import InvalidInput

Indices = Int64[np.ndarray, " _"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledDomain:
    """The labels of one domain: enough to split it among clients."""

    name: str
    labels: Int64[np.ndarray, " n"]
    official_test: Int64[np.ndarray, " t"] | None = None  # rows of the published test set; None: it is drawn
    full_train_size: int | None = None  # of the published training set, if these samples are only a part of it

    def __len__(self) -> int:
        return len(self.labels)

    def _check_one_label_each(self, kind: str, samples: int) -> None:
        if samples != len(self.labels):
            raise InvalidInput(
                f"domain {self.name}: expected one label for each {kind}, "
                f"got {samples} {kind}s and {len(self.labels)} labels; check how it was read"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageDomain(LabelledDomain):
    """All images of one domain in RGB, not yet split into training and test; they may be mapped from disk."""

    images: UInt8[np.ndarray, "n h w 3"]

    def __post_init__(self) -> None:
        self._check_one_label_each("image", len(self.images))


@dataclass(frozen=True, kw_only=True, eq=False)
class TextDomain(LabelledDomain):
    """All texts of one domain, not yet split into training and test."""

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        self._check_one_label_each("text", len(self.texts))


@dataclass(frozen=True, kw_only=True, eq=False)
class Benchmark:
    """Several domains that share one set of classes, each of which has samples.

    >>> domain = LabelledDomain(name="photo", labels=np.array([0, 1, 1]))
    >>> Benchmark(name="toy", classes=2, class_names=("cat", "dog"), domains=(domain,)).labels
    array([0, 1, 1])
    """

    name: str
    classes: int
    class_names: tuple[str, ...]
    domains: tuple[LabelledDomain, ...]  # in the order of the clients
    warnings: tuple[str, ...] = ()  # what the user should know about the data

    def __post_init__(self) -> None:
        if len(self.class_names) != self.classes:
            raise InvalidInput(
                f"benchmark {self.name}: expected {self.classes} class names, got {len(self.class_names)}; "
                "give one name for each class"
            )
        for domain in self.domains:
            if len(domain) and not 0 <= domain.labels.min() <= domain.labels.max() < self.classes:
                raise InvalidInput(
                    f"benchmark {self.name}: expected labels from 0 to {self.classes - 1}, got "
                    f"{domain.labels.min()} to {domain.labels.max()} in {domain.name}; check how it was read"
                )
        for label in np.setdiff1d(np.arange(self.classes), self.labels):
            raise InvalidInput(
                f"benchmark {self.name}: class {self.class_names[label]} has no samples in any domain; "
                "ask for more samples, or check how the data were read"
            )

    @property
    def labels(self) -> Int64[np.ndarray, " n"]:
        """The labels of all domains, concatenated: a row of the benchmark is an index into this array."""
        return np.concatenate([domain.labels for domain in self.domains])

    @property
    def image_domains(self) -> tuple[ImageDomain, ...]:
        """The domains of a benchmark of images; another one is refused."""
        domains = tuple(domain for domain in self.domains if isinstance(domain, ImageDomain))
        if len(domains) != len(self.domains):
            raise InvalidInput(f"benchmark {self.name}: expected images, got something else; use another benchmark")
        return domains

    @property
    def text_domains(self) -> tuple[TextDomain, ...]:
        """The domains of a benchmark of texts; another one is refused."""
        domains = tuple(domain for domain in self.domains if isinstance(domain, TextDomain))
        if len(domains) != len(self.domains):
            raise InvalidInput(f"benchmark {self.name}: expected texts, got something else; use another benchmark")
        return domains
