"""Settings that are fine alone and impossible together."""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vpdr.errors import InvalidInput
from vpdr.finetune import REGULARISERS, Dcr, Plain, Regulariser
from vpdr.frameworks import FRAMEWORKS, Framework
from vpdr.mechanisms import MECHANISMS, Focus
from vpdr.plan.data_combinations import check_data
from vpdr.plan.values import fitted, known
from vpdr.privacy import ACCOUNTANTS, Adjacency, Basis, Budget, EncoderKind, Level
from vpdr.prototypes import SUMMARISERS, ClassMeans, Summariser

if TYPE_CHECKING:
    from vpdr.plan.plan import Plan

# what the plug-ins say of themselves
NOT_PRIVATE = {name for name, kind in MECHANISMS.items() if not kind.facts.private}
SELECTS = {name for name, kind in MECHANISMS.items() if kind.facts.selects}
HIDES_COUNTS = {name for name, rule in SUMMARISERS.items() if rule.hides_counts(Adjacency.REPLACE_ONE)}
WITHOUT_SETTINGS = {name for name, kind in REGULARISERS.items() if kind.idle}
DECIDED_ELSEWHERE = {"summarise", "on_path"}  # by release.summariser and release.encoder


def check_combinations(plan: "Plan") -> None:
    """Refuse what cannot run, or what would not keep the promise that the plan asks for."""
    check_data(plan)
    known("framework", [plan.framework.kind], FRAMEWORKS)
    known("mechanism", [plan.mechanism.kind], MECHANISMS)
    known("regulariser", [plan.regulariser.kind], REGULARISERS)
    known("accountant", [plan.budget.accountant], ACCOUNTANTS)
    known("adjacency", [plan.budget.adjacency], list(Adjacency))
    known("summariser", [plan.release.summariser], ["framework", *SUMMARISERS])
    budget = Budget(plan.budget.epsilon, plan.budget.delta)
    ACCOUNTANTS[plan.budget.accountant].multiplier(budget, 1)  # a Gaussian release must be possible at all
    focus_of(plan)
    regulariser_of(plan)
    for kind in plan.framework.options:
        framework_of(plan, kind)
    _check_ignored(plan)
    _check_counts(plan)
    _check_promise(plan)


def fitted_options(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The options of each framework, of the right kind and known to it."""
    known("framework table", tables, FRAMEWORKS)
    out: dict[str, dict[str, Any]] = {}
    for kind, options in tables.items():
        fields = inspect.signature(FRAMEWORKS[kind]).parameters
        known(f"setting in [framework.{kind}]", options, set(fields) - DECIDED_ELSEWHERE)
        out[kind] = {
            name: fitted(f"framework.{kind}.{name}", value, fields[name].annotation)
            for name, value in options.items()
        }
    return out


def framework_of(plan: "Plan", kind: str) -> Framework[Any]:
    """A framework as the plan sets it, with its own path for releases where the plan asks for one."""
    try:
        made = FRAMEWORKS[kind](**plan.framework.options.get(kind, {}))
    except InvalidInput as error:
        raise InvalidInput(f"[framework.{kind}] {error}") from error
    return (made.transcript() or made) if plan.release.encoder == EncoderKind.TRANSCRIPT else made


def _check_ignored(plan: "Plan") -> None:
    """A setting that nobody would read is a mistake, not a wish."""
    own = framework_of(plan, plan.framework.kind).summarise
    means = plan.release.summariser == "means" or (
        plan.release.summariser == "framework" and isinstance(own, ClassMeans)
    )
    if plan.release.min_count > 1 and not means:
        raise InvalidInput(
            "release.min_count is for class means; leave it out, or set release.summariser=means"
        )
    for client, rounds in plan.participation.schedule.items():
        if not isinstance(rounds, list) or not all(type(t) is int for t in rounds):
            raise InvalidInput(f"participation.schedule.{client} must be a list of rounds, got {rounds!r}")
        if not all(1 <= t <= plan.run.rounds for t in rounds):
            raise InvalidInput(
                f"participation.schedule.{client} must lie in 1 to {plan.run.rounds}, got {rounds}"
            )


def regulariser_of(plan: "Plan") -> Regulariser:
    """The regulariser that the plan asks for, at the mechanism's clip norm."""
    if plan.regulariser.kind in WITHOUT_SETTINGS:
        return Plain()
    settings = {name: getattr(plan.regulariser, name) for name in plan.regulariser.settings}
    try:
        return Dcr(clip_norm=plan.mechanism.clip_norm, **settings)
    except InvalidInput as error:
        raise InvalidInput(f"[regulariser] {error}") from error


def _check_counts(plan: "Plan") -> None:
    """Class counts are private wherever a neighbour can change them."""
    if plan.budget.adjacency == Adjacency.REPLACE_SAME_LABEL or plan.mechanism.kind in NOT_PRIVATE:
        return
    if sharing(plan) and not summariser_of(plan).hides_counts(Adjacency(plan.budget.adjacency)):
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
    if summariser_of(plan).basis is Basis.AS_PUBLISHED:
        return Level.AS_PUBLISHED
    return Level.CONDITIONAL if release_encoder(plan) is EncoderKind.PERSONAL else Level.PROVED


def summariser_of(plan: "Plan") -> Summariser | type[Summariser]:
    """Whose word counts for what is released: the rule that the plan names, or the framework's own."""
    kind = plan.release.summariser
    return framework_of(plan, plan.framework.kind).summarise if kind == "framework" else SUMMARISERS[kind]


def focus_of(plan: "Plan") -> Focus:
    """The discriminative group that the plan asks for."""
    chosen = plan.mechanism
    return Focus(keep=chosen.keep, cap=chosen.cap, share=chosen.share, selection=chosen.selection)


def release_encoder(plan: "Plan") -> EncoderKind:
    """Which path's features are released: the plan's choice, or the framework's."""
    chosen = plan.release.encoder
    own = framework_of(plan, plan.framework.kind).encoder
    kind = own if chosen == "framework" else EncoderKind(chosen)
    return EncoderKind.ACCOUNTED if kind is EncoderKind.PERSONAL and plan.train.private else kind


def sharing(plan: "Plan") -> bool:
    """Whether anything is uploaded."""
    return framework_of(plan, plan.framework.kind).uploads
