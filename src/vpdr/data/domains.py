"""Samples with labels, grouped by where they come from."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt8

from vpdr.errors import InvalidInput


@dataclass(frozen=True, kw_only=True, eq=False)
class Roll:
    """The labels of one source: all that is needed to divide it.

    `official_test` are the rows that the public set itself keeps for testing; None where the split is ours
    to draw. `whole` is the size of the public training set where these samples are only a part of it.
    """

    name: str
    labels: Int64[np.ndarray, " n"]
    official_test: Int64[np.ndarray, " t"] | None = None
    whole: int | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True, eq=False)
class Domain(Roll):
    """All pictures of one source, not yet split into training and test; they may lie on disk."""

    images: UInt8[np.ndarray, "n h w 3"]

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise InvalidInput(
                f"domain {self.name}: expected one label for each image, "
                f"got {len(self.images)} images and {len(self.labels)} labels; check how it was read"
            )

    def take(self, indices: Int64[np.ndarray, " m"]) -> "Domain":
        """The same source with these samples only, in this order; whose test they were is forgotten."""
        return Domain(name=self.name, images=self.images[indices], labels=self.labels[indices])


@dataclass(frozen=True, kw_only=True, eq=False)
class TextDomain(Roll):
    """All texts of one source, not yet split into training and test."""

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.labels):
            raise InvalidInput(
                f"domain {self.name}: expected one label for each text, "
                f"got {len(self.texts)} texts and {len(self.labels)} labels; check how it was read"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Benchmark:
    """Several domains that share one set of classes; `remarks` is what its user should hear about it."""

    name: str
    classes: int
    class_names: tuple[str, ...]
    domains: tuple[Roll, ...]
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.class_names) != self.classes:
            raise InvalidInput(
                f"benchmark {self.name}: expected {self.classes} class names, got {len(self.class_names)}; "
                "give one name for each class"
            )
        self._check_labels()
        present = np.unique(self.labels)
        for label in np.setdiff1d(np.arange(self.classes), present):
            raise InvalidInput(
                f"benchmark {self.name}: class {self.class_names[label]} has no samples in any domain; "
                "ask for more samples, or check how the data were read"
            )

    @property
    def labels(self) -> Int64[np.ndarray, " n"]:
        """The labels of all domains, one domain after the other: a row of the benchmark is a place in it."""
        return np.concatenate([domain.labels for domain in self.domains])

    @property
    def pictures(self) -> tuple[Domain, ...]:
        """The domains of a benchmark of pictures."""
        found = tuple(domain for domain in self.domains if isinstance(domain, Domain))
        if len(found) != len(self.domains):
            raise InvalidInput(f"benchmark {self.name}: expected pictures, got something else; use another")
        return found

    @property
    def texts(self) -> tuple[TextDomain, ...]:
        """The domains of a benchmark of texts."""
        found = tuple(domain for domain in self.domains if isinstance(domain, TextDomain))
        if len(found) != len(self.domains):
            raise InvalidInput(f"benchmark {self.name}: expected texts, got something else; use another")
        return found

    def _check_labels(self) -> None:
        for domain in self.domains:
            if len(domain) and not 0 <= domain.labels.min() <= domain.labels.max() < self.classes:
                raise InvalidInput(
                    f"benchmark {self.name}: expected labels from 0 to {self.classes - 1}, got "
                    f"{domain.labels.min()} to {domain.labels.max()} in {domain.name}; check how it was read"
                )
