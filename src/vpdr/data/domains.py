"""Pictures with labels, grouped by where they come from."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt8

from vpdr.errors import InvalidInput


@dataclass(frozen=True, kw_only=True, eq=False)
class Domain:
    """All samples of one source, not yet split into training and test."""

    name: str
    images: UInt8[np.ndarray, "n h w 3"]
    labels: Int64[np.ndarray, " n"]

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise InvalidInput(
                f"domain {self.name}: expected one label for each image, "
                f"got {len(self.images)} images and {len(self.labels)} labels; check how it was read"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Int64[np.ndarray, " m"]) -> "Domain":
        """The same source with these samples only, in this order."""
        return Domain(name=self.name, images=self.images[indices], labels=self.labels[indices])


@dataclass(frozen=True, kw_only=True, eq=False)
class Benchmark:
    """Several domains that share one set of classes."""

    name: str
    classes: int
    class_names: tuple[str, ...]
    domains: tuple[Domain, ...]

    def __post_init__(self) -> None:
        if len(self.class_names) != self.classes:
            raise InvalidInput(
                f"benchmark {self.name}: expected {self.classes} class names, got {len(self.class_names)}; "
                "give one name for each class"
            )
        self._check_labels()
        present = np.unique(np.concatenate([domain.labels for domain in self.domains]))
        for label in np.setdiff1d(np.arange(self.classes), present):
            raise InvalidInput(
                f"benchmark {self.name}: class {self.class_names[label]} has no samples in any domain; "
                "ask for more samples, or check how the data were read"
            )

    def _check_labels(self) -> None:
        for domain in self.domains:
            if len(domain) and not 0 <= domain.labels.min() <= domain.labels.max() < self.classes:
                raise InvalidInput(
                    f"benchmark {self.name}: expected labels from 0 to {self.classes - 1}, got "
                    f"{domain.labels.min()} to {domain.labels.max()} in {domain.name}; check how it was read"
                )
