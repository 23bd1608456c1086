"""A public benchmark: what it should be, and how it is had from a user's disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypedDict

import numpy as np

from vpdr.checks import one_of
from vpdr.data.division import Division
from vpdr.data.domains import Benchmark, Domain, Roll, TextDomain
from vpdr.data.findings import Findings
from vpdr.data.found import Found
from vpdr.data.partition import Indices
from vpdr.data.picture_cache import cached_pictures
from vpdr.data.sources.facts import Checkup, Count, DomainFacts
from vpdr.errors import InvalidInput
from vpdr.progress import Progress, quiet

Reader: TypeAlias = Callable[[Path, str, Findings], Found | None]


class Outline(TypedDict):
    """What every kind of domain has."""

    name: str
    labels: Indices
    official_test: Indices | None
    whole: int | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """One benchmark of the paper, as data: other rooms ask it instead of its name."""

    name: str
    title: str
    modality: str  # image or text
    domains: tuple[DomainFacts, ...]
    class_names: tuple[str, ...]
    needs: str  # the layouts that are understood
    where: str  # to get it
    licence: str
    division: Division  # as the paper has it
    flips: bool  # whether a mirrored picture is still one of its class
    read: Reader

    def load(
        self,
        root: Path,
        *,
        pixels: int = 224,
        progress: Progress = quiet,
        only: Sequence[str] | None = None,
    ) -> Benchmark:
        """The benchmark with its pictures (decoded once, then from the cache) or texts.

        Data that cannot be trusted are refused, in one line; `only` names the domains to do without the
        others. `progress` hears (domain, done, total) while pictures are decoded.
        """
        return self._benchmark(
            root, only, lambda facts, found: self._domain(facts, found, pixels=pixels, progress=progress)
        )

    def roll(self, root: Path, *, only: Sequence[str] | None = None) -> Benchmark:
        """The benchmark's labels alone: enough to draw a split, and no picture is decoded."""
        return self._benchmark(root, only, lambda facts, found: Roll(**_outline(facts, found)))

    def check(self, root: Path, *, progress: Progress = quiet, only: Sequence[str] | None = None) -> Checkup:
        """Count everything, look at every picture, and go on whatever is found."""
        findings = Findings(_folder(root))
        counts: list[Count] = []
        for facts in self._wanted(only):
            found = self._found(facts, findings)
            if found is not None:
                counts += self._counted(facts, found, findings)
                _look_at(facts.name, found, findings, progress)
        lines = (*findings.lines(fatal=True), *findings.lines(fatal=False))
        return Checkup(source=self.name, counts=tuple(counts), findings=lines)

    def _benchmark(
        self, root: Path, only: Sequence[str] | None, made: Callable[[DomainFacts, Found], Roll]
    ) -> Benchmark:
        findings, read = Findings(_folder(root)), []
        for facts in self._wanted(only):
            found = self._found(facts, findings)
            if found is not None:
                self._counted(facts, found, findings)
                read.append((facts, found))
        if first := findings.lines(fatal=True):
            more = f" (and {len(first) - 1} more)" if len(first) > 1 else ""
            raise InvalidInput(f"{first[0]}{more}; `vpdr data check {self.name} --root {root}` tells it all")
        return Benchmark(
            name=self.name,
            classes=len(self.class_names),
            class_names=self.class_names,
            domains=tuple(made(facts, found) for facts, found in read),
            remarks=findings.lines(fatal=False),
        )

    def _found(self, facts: DomainFacts, findings: Findings) -> Found | None:
        try:
            return self.read(findings.root, facts.name, findings)
        except OSError as error:
            findings.broken(f"{facts.name}: cannot read {error.filename}: {error.strerror}; allow it")
            return None

    def _wanted(self, only: Sequence[str] | None) -> tuple[DomainFacts, ...]:
        if only is None:
            return self.domains
        for name in only:
            one_of([facts.name for facts in self.domains], domain=name)
        return tuple(facts for facts in self.domains if facts.name in only)

    def _counted(self, facts: DomainFacts, found: Found, findings: Findings) -> list[Count]:
        """Samples of each class, with a remark wherever the public set has another number."""
        split = len(found.labels) - (found.tested or 0)
        parts = {"all": found.labels} if found.tested is None else {"train": found.labels[:split]}
        if found.tested is not None:
            parts["test"] = found.labels[split:]
        counts = []
        for (part, labels), expected in zip(parts.items(), (facts.train, facts.test), strict=False):
            sizes = np.bincount(labels, minlength=len(self.class_names))
            count = Count(facts.name, part, tuple(sizes.tolist()), expected)
            counts.append(count)
            for line in count.differences(self.class_names):
                findings.remark(line)
        return counts

    def _domain(self, facts: DomainFacts, found: Found, *, pixels: int, progress: Progress) -> Roll:
        outline = _outline(facts, found)
        if isinstance(found.content, tuple):
            return TextDomain(texts=found.content, **outline)

        def told(done: int, total: int) -> None:
            progress(facts.name, done, total)

        images = cached_pictures(found.content, f"{self.name}/{facts.name}", pixels=pixels, progress=told)
        return Domain(images=images, **outline)


def _outline(facts: DomainFacts, found: Found) -> Outline:
    trained = len(found.labels) - (found.tested or 0)
    partly = found.tested is not None and trained < sum(facts.train)
    return Outline(
        name=facts.name,
        labels=found.labels,
        official_test=found.official_test,
        whole=sum(facts.train) if partly else None,
    )


def _look_at(name: str, found: Found, findings: Findings, progress: Progress) -> None:
    if isinstance(found.content, tuple):
        return
    for row in range(len(found.content)):
        found.content.check(row, findings)
        progress(name, row + 1, len(found.content))


def _folder(root: Path) -> Path:
    root = Path(root).expanduser()
    if not root.is_dir():
        raise InvalidInput(f"expected a folder with the data, got {root}; give one that exists")
    return root
