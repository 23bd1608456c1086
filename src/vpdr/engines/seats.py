"""From a plan to each client's place: its data, and what is frozen under them."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from vpdr.client import Samples, Shard
from vpdr.data import Benchmark, Division, Manifest, Portion
from vpdr.data.division import parts_of
from vpdr.data.partition import Indices
from vpdr.data.synthetic import blobs
from vpdr.encoder import Member, Trunk, Vectors
from vpdr.engines.origins import ORIGINS, divided
from vpdr.engines.trunks import Pooled, member_of, pooled, trunk_of, wanted
from vpdr.plan.plan import Plan
from vpdr.plan.values import known
from vpdr.progress import Progress
from vpdr.rng import Streams


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    """One client before the first round. The shard is private, the rest is the same for everybody."""

    shard: Shard
    member: Member
    trunk: Trunk | None = None  # None: data without a backbone


@dataclass(frozen=True, kw_only=True, slots=True)
class Seats:
    """All clients by name, with the division that made them."""

    clients: dict[str, Seat]
    classes: int
    manifest: Manifest | None = None  # None: data that are made for each client


def seats_of(plan: Plan, streams: Streams, progress: Progress) -> Seats:
    """Load the data and deal them out as the plan says."""
    made = _dealt if plan.benchmark.kind in ORIGINS else _synthetic
    seats = made(plan, streams, progress)
    known("client in participation.schedule", plan.participation.schedule, seats.clients)
    return seats


def seat_at(plan: Plan, streams: Streams, progress: Progress, places: Mapping[str, int]) -> Seats:
    """Only these clients, each with the architecture of its place among all clients of the federation.

    The data at hand may be those of one silo; then they do not tell how many are before it.
    """
    return _dealt(plan, streams, progress, places)


def _dealt(
    plan: Plan, streams: Streams, progress: Progress, places: Mapping[str, int] | None = None
) -> Seats:
    """A real benchmark: each client has its rows, seen through its own architecture."""
    halls: dict[Member, _Hall] = {}

    def hall(index: int) -> _Hall:
        member = member_of(plan, index)
        if member not in halls:
            trunk = trunk_of(plan, member, streams)
            found = pooled(wanted(plan, trunk.backbone, progress))
            halls[member] = _Hall(found.benchmark, trunk, _samples(trunk, found))
        return halls[member]

    benchmark = hall(min(places.values()) if places else 0).benchmark
    manifest = divided(benchmark, plan.benchmark, streams)
    if places is None:
        places = {portion.client: index for index, portion in enumerate(manifest.portions)}
    clients = {
        portion.client: Seat(
            shard=_shard(hall(places[portion.client]).everything, portion),
            member=member_of(plan, places[portion.client]),
            trunk=hall(places[portion.client]).trunk,
        )
        for portion in manifest.portions
        if portion.client in places
    }
    return Seats(clients=clients, classes=benchmark.classes, manifest=manifest)


@dataclass(frozen=True, slots=True)
class _Hall:
    """The whole benchmark as clients of one architecture see it."""

    benchmark: Benchmark
    trunk: Trunk
    everything: Samples


def _shard(everything: Samples, portion: Portion) -> Shard:
    validation = _taken(everything, portion.validation) if len(portion.validation) else None
    return Shard(_taken(everything, portion.train), _taken(everything, portion.test), validation)


@torch.no_grad()
def _samples(trunk: Trunk, found: Pooled) -> Samples:
    """The whole benchmark on the frozen path, with what a trained path would be fed."""
    labels = torch.from_numpy(found.benchmark.labels)
    inputs = found.inputs
    if inputs is None and trunk.path.trained:
        inputs = Vectors(found.features)
    return Samples(trunk.path(found.features), labels, inputs)


def _taken(samples: Samples, rows: Indices) -> Samples:
    return samples.take(torch.from_numpy(rows))


def _synthetic(plan: Plan, streams: Streams, _: Progress) -> Seats:
    section = plan.benchmark
    each = max(1, section.samples // section.classes)
    made = blobs(section.clients or 4, section.classes, plan.model.dim, each, streams)
    clients = {}
    for index, one in enumerate(made):
        name, train = f"client-{index:03d}", Samples(one.train_x, one.train_y)
        if section.skew == "label":
            rule = Division(skew="label", concentration=section.concentration, minimum=section.minimum)
            rows = parts_of(train.labels.numpy(), rule, streams.draw("skew", client=name))[0]
            train = _taken(train, rows)
        shard = Shard(train, Samples(one.test_x, one.test_y))
        clients[name] = Seat(shard=shard, member=member_of(plan, index))
    return Seats(clients=clients, classes=section.classes)
