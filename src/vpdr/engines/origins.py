"""Where a plan's data come from, and how they are divided unless the plan says otherwise."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vpdr.data import SOURCES, Benchmark, Division, Manifest, Source, divide
from vpdr.data.manifest_file import read_manifest
from vpdr.data.quickstart import NAMES, PIXELS, load_quickstart
from vpdr.errors import InvalidInput
from vpdr.plan.sections import BenchmarkSection
from vpdr.plan.values import known
from vpdr.progress import Progress
from vpdr.rng import Streams


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """One kind of benchmark, for every engine."""

    load: Callable[[BenchmarkSection, int, Progress], Benchmark]
    division: Division
    flips: bool = False  # whether a mirrored picture is still one of its class
    pixels: int = 0  # 0: the backbone's own


def _public(source: Source) -> Origin:
    def load(section: BenchmarkSection, pixels: int, progress: Progress) -> Benchmark:
        if not section.root:
            raise InvalidInput(
                f"benchmark {source.name} needs its data, got no folder; give --data {source.name}=DIR "
                f"(`vpdr data list` says where to get it)"
            )

        def told(name: str, done: int, total: int) -> None:
            progress(f"pictures of {name}", done, total)

        only = section.domains or None
        return source.load(Path(section.root), pixels=pixels or 224, progress=told, only=only)

    return Origin(load=load, division=source.division, flips=source.flips)


def _quickstart(section: BenchmarkSection, _pixels: int, _progress: Progress) -> Benchmark:
    known("domain of quickstart", section.domains, NAMES)
    whole = load_quickstart(section.samples)
    chosen = tuple(domain for domain in whole.domains if domain.name in (section.domains or NAMES))
    return dataclasses.replace(whole, domains=chosen)


ORIGINS: dict[str, Origin] = {
    "quickstart": Origin(load=_quickstart, division=Division(test_fraction=0.25), pixels=PIXELS),
    **{name: _public(source) for name, source in SOURCES.items()},
}


def divided(benchmark: Benchmark, section: BenchmarkSection, streams: Streams) -> Manifest:
    """The stored division that the plan names, or a new one by its rule."""
    if section.manifest:
        manifest = read_manifest(Path(section.manifest).expanduser())
        manifest.check(benchmark)
        return manifest
    return divide(benchmark, division_of(section), streams)


def division_of(section: BenchmarkSection) -> Division:
    """The benchmark's own rule with what the plan changes in it."""
    own = ORIGINS[section.kind].division
    return dataclasses.replace(
        own,
        test_fraction=section.test_fraction or own.test_fraction,
        train_fraction=section.train_fraction or own.train_fraction,
        validation_fraction=section.validation_fraction,
        skew=section.skew or own.skew,
        concentration=section.concentration,
        clients=section.clients or own.clients,
        per_domain=section.per_domain,
        minimum=section.minimum,
        test=section.test,
    )
