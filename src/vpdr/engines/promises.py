"""From a plan to what each client promises: mechanism, summariser, noise and ledger."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vpdr.client import Client, Promise
from vpdr.engines.accounted import shared_out
from vpdr.engines.release_space import release_space
from vpdr.frameworks import Framework
from vpdr.mechanisms import Identity, Igpp, Mechanism, NoiseSource, SeededNoise, SystemNoise, Vpp
from vpdr.mechanisms.rapp import Rapp, parsed_shares
from vpdr.plan.combinations import expected_level, focus_of, release_encoder
from vpdr.plan.plan import Plan
from vpdr.privacy import Adjacency, Budget, Ledger, Level, Noise, Purpose
from vpdr.privacy.stored_ledger import stored
from vpdr.prototypes import SUMMARISERS, ClassMeans, ClassSums, Summariser
from vpdr.rng import Streams


def promise_of(plan: Plan, framework: Framework[Any], classes: int, streams: Streams) -> Promise:
    """How every client of the plan releases."""

    def noise(client: str, t: int, purpose: Purpose) -> NoiseSource:
        if plan.release.noise == Noise.SYSTEM:
            return SystemNoise()
        return SeededNoise(streams.draw(purpose, client=client, t=t))

    mechanism, training = MAKERS[plan.mechanism.kind](plan, classes, streams), None
    if plan.train.private:
        mechanism, training = shared_out(plan, mechanism, classes)
    return Promise(
        mechanism=mechanism,
        summarise=_summariser(plan, framework, classes),
        encoder=release_encoder(plan),
        releases=plan.releases,
        clip_norm=plan.mechanism.clip_norm,
        noise=noise,
        training=training,
    )


def _summariser(plan: Plan, framework: Framework[Any], classes: int) -> Summariser:
    kind, means = plan.release.summariser, ClassMeans(min_count=plan.release.min_count)
    if kind == "framework" and isinstance(framework.summarise, ClassMeans):
        return means
    special: dict[str, Summariser] = {
        "framework": framework.summarise,
        "means": means,
        "sums": ClassSums(classes=classes),
    }
    return special[kind] if kind in special else SUMMARISERS[kind]()


def _none(plan: Plan, *_: object) -> Mechanism:
    return Identity(adjacency=Adjacency(plan.budget.adjacency))


def _igpp(plan: Plan, *_: object) -> Mechanism:
    return Igpp.calibrated(
        Budget(plan.budget.epsilon, plan.budget.delta),
        plan.releases,
        clip_norm=plan.mechanism.clip_norm,
        accountant=plan.budget.accountant,
        adjacency=Adjacency(plan.budget.adjacency),
        accumulate=plan.mechanism.accumulate,
    )


def _vpp(plan: Plan, *_: object) -> Mechanism:
    return Vpp.calibrated(
        Budget(plan.budget.epsilon, plan.budget.delta),
        plan.releases,
        clip_norm=plan.mechanism.clip_norm,
        dim=plan.model.dim,
        focus=focus_of(plan),
        accountant=plan.budget.accountant,
        adjacency=Adjacency(plan.budget.adjacency),
    )


def _rapp(plan: Plan, classes: int, streams: Streams) -> Mechanism:
    """The space of the release is drawn from public streams: all clients must share it."""
    return Rapp.calibrated(
        Budget(plan.budget.epsilon, plan.budget.delta),
        plan.releases,
        clip_norm=plan.mechanism.clip_norm,
        classes=classes,
        geometry=release_space(plan, streams),
        shares=parsed_shares(plan.mechanism.stages),
        per_class=plan.mechanism.per_class,
        accountant=plan.budget.accountant,
        adjacency=Adjacency(plan.budget.adjacency),
    )


MAKERS: dict[str, Callable[[Plan, int, Streams], Mechanism]] = {
    "none": _none,
    "igpp": _igpp,
    "vpp": _vpp,
    "rapp": _rapp,
}


def ledger_of(plan: Plan, client: str) -> Ledger:
    """A client's ledger; a run that is not private by its plan is recorded without a limit."""
    limited = expected_level(plan) is not Level.NONE
    return Ledger(
        client=client,
        budget=Budget(plan.budget.epsilon, plan.budget.delta) if limited else None,
        accountant=plan.budget.accountant,
        adjacency=Adjacency(plan.budget.adjacency),
    )


def pay_on_disk(clients: Sequence[Client], books: Path) -> None:
    """Move the clients' ledgers into files, so that no crash between two rounds can give a charge back."""
    for client in clients:
        client.ledger = stored(client.ledger, books / f"{client.id}.json")
