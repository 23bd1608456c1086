"""How large the public sets are, and how what was found compares."""

from dataclasses import dataclass

_NAMED = 3  # classes in one line


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainFacts:
    """One domain as it was published: samples of each class, or one total where that is all we know.

    Without an official test set, `train` is everything.
    """

    name: str
    title: str
    train: tuple[int, ...]
    test: tuple[int, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The totals: training and test, or everything."""
        return (sum(self.train), sum(self.test)) if self.test else (sum(self.train),)


@dataclass(frozen=True, slots=True)
class Count:
    """Samples of each class in one part of a domain, and what was published."""

    domain: str
    part: str  # train, test or all
    classes: tuple[int, ...]
    expected: tuple[int, ...]

    @property
    def total(self) -> int:
        """All samples of the part."""
        return sum(self.classes)

    def differences(self, class_names: tuple[str, ...]) -> list[str]:
        """One line for the part, with the classes that differ where they are known."""
        if self.expected in {self.classes, (self.total,)}:
            return []
        words = f"{self.domain}: expected {sum(self.expected):,} samples in {self.part}, got {self.total:,}"
        if len(self.expected) != len(self.classes):
            return [words]
        rows = zip(class_names, self.expected, self.classes, strict=True)
        others = [f"{name} {got:,} for {expected:,}" for name, expected, got in rows if expected != got]
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        return [f"{words} ({', '.join(others[:_NAMED])}{more})"]


@dataclass(frozen=True, slots=True)
class Checkup:
    """All counts of a benchmark, and one line for whatever is not as it should be."""

    source: str
    counts: tuple[Count, ...]
    findings: tuple[str, ...]
