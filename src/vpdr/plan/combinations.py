"""Settings that are fine alone and impossible together."""

import inspect
from typing import TYPE_CHECKING

from vpdr.encoder import PROJECTIONS
from vpdr.errors import InvalidInput
from vpdr.finetune import REGULARISERS
from vpdr.frameworks import FRAMEWORKS
from vpdr.mechanisms import MECHANISMS, Focus
from vpdr.plan.values import known
from vpdr.privacy import ACCOUNTANTS, Adjacency, Basis, Budget, EncoderKind, Level
from vpdr.prototypes import SUMMARISERS

if TYPE_CHECKING:
    from vpdr.plan.plan import Plan

NOT_PRIVATE = {"none"}
SELECTS = {"vpp"}
UNPROVED = {"kmeans", "finch"}
HIDES_COUNTS = {"sums"}
BENCHMARKS = ("quickstart", "synthetic")


def check_combinations(plan: "Plan") -> None:
    """Refuse what cannot run, or what would not keep the promise that the plan asks for."""
    known("benchmark", [plan.benchmark.kind], BENCHMARKS)
    known("projection", [plan.model.projection], PROJECTIONS)
    known("framework", [plan.framework.kind], FRAMEWORKS)
    known("mechanism", [plan.mechanism.kind], MECHANISMS)
    known("regulariser", [plan.regulariser.kind], REGULARISERS)
    known("accountant", [plan.budget.accountant], ACCOUNTANTS)
    known("adjacency", [plan.budget.adjacency], list(Adjacency))
    known("summariser", [plan.release.summariser], ["framework", *SUMMARISERS])
    Budget(plan.budget.epsilon, plan.budget.delta)
    focus_of(plan)
    _check_options(plan)
    _check_counts(plan)
    _check_promise(plan)


def _check_options(plan: "Plan") -> None:
    known("framework table", plan.framework.options, FRAMEWORKS)
    for kind, options in plan.framework.options.items():
        fields = set(inspect.signature(FRAMEWORKS[kind]).parameters) - {"summarise"}
        known(f"setting in [framework.{kind}]", options, fields)


def _check_counts(plan: "Plan") -> None:
    """Class counts are private wherever a neighbour can change them."""
    if plan.budget.adjacency == Adjacency.REPLACE_SAME_LABEL or plan.mechanism.kind in NOT_PRIVATE:
        return
    if plan.release.summariser not in HIDES_COUNTS and sharing(plan):
        raise InvalidInput(
            f"adjacency {plan.budget.adjacency} keeps class counts private, and summariser "
            f"{plan.release.summariser} gives them away; set release.summariser=sums"
        )
    if plan.weights.kind != "uniform":
        raise InvalidInput(
            f"weights {plan.weights.kind} need public counts, adjacency {plan.budget.adjacency} keeps them "
            "private; set weights.kind=uniform"
        )


def _check_promise(plan: "Plan") -> None:
    promised = expected_level(plan)
    order = list(Level)
    wanted = {"anything": Level.NONE, "conditional": Level.CONDITIONAL, "proved": Level.PROVED}
    if order.index(promised) > order.index(wanted[plan.budget.require]):
        raise InvalidInput(
            f"the plan requires a guarantee that is {plan.budget.require}, this one would be {promised}; "
            "set release.encoder=public and release.summariser=sums, or lower budget.require"
        )


def expected_level(plan: "Plan") -> Level:
    """What the plan's releases will be worth."""
    if not sharing(plan):
        return Level.PROVED
    if plan.mechanism.kind in NOT_PRIVATE or (plan.mechanism.kind in SELECTS and not focus_of(plan).private):
        return Level.NONE
    if plan.release.summariser in UNPROVED or (
        plan.release.summariser == "framework"
        and FRAMEWORKS[plan.framework.kind]().summarise.basis is Basis.AS_PUBLISHED
    ):
        return Level.AS_PUBLISHED
    return Level.CONDITIONAL if release_encoder(plan) is EncoderKind.PERSONAL else Level.PROVED


def focus_of(plan: "Plan") -> Focus:
    """The discriminative group that the plan asks for."""
    chosen = plan.mechanism
    return Focus(keep=chosen.keep, cap=chosen.cap, share=chosen.share, selection=chosen.selection)


def release_encoder(plan: "Plan") -> EncoderKind:
    """Which path's features are released: the plan's choice, or the framework's."""
    if plan.release.encoder == "framework":
        return FRAMEWORKS[plan.framework.kind]().encoder
    return EncoderKind(plan.release.encoder)


def sharing(plan: "Plan") -> bool:
    """Whether anything is uploaded."""
    return FRAMEWORKS[plan.framework.kind]().uploads
