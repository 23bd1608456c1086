"""Does a plan stay within a policy? Decided from the two texts alone, before any data are touched."""

from collections.abc import Iterator

from vpdr.encoder import families
from vpdr.flower.policy import Policy
from vpdr.flower.refusals import Code, Refused
from vpdr.mechanisms.focus import Groups
from vpdr.plan.combinations import SELECTS, expected_level, focus_of, sharing
from vpdr.plan.plan import Plan
from vpdr.privacy import Adjacency, Budget, Level, Noise

HAIR = 1e-9  # for rounding; the ledger itself is stricter


def judge(policy: Policy, plan: Plan) -> None:
    """Refuse a plan that asks for more than the owner allows.

    Guarantee: what passes can spend at most the policy's (ε, δ) by its own calibration; the ledger of the
    owner counts every release besides, so runs that each stay within it cannot pass it together.
    """
    for code, wrong in _faults(policy, plan):
        if wrong:
            raise Refused(code, f"the plan goes beyond the policy of {policy.name}")
    if policy.data.place < 0 and _has_several_models(policy, plan):
        raise Refused(
            Code.PLACE, f"family {plan.model.family} has a model for each place; set data.place in the policy"
        )


def _has_several_models(policy: Policy, plan: Plan) -> bool:
    """Whether the plan's models differ from client to client; what an app brings has its own."""
    brought = not (policy.data.features or policy.data.benchmark)
    return bool(plan.model.family) and not brought and len(set(families()[plan.model.family].members)) > 1


def _faults(policy: Policy, plan: Plan) -> Iterator[tuple[Code, bool]]:
    allow, order = policy.allow, list(Level)
    yield Code.ROUNDS, plan.run.rounds > allow.rounds
    if policy.data.benchmark:
        yield Code.BENCHMARK, plan.benchmark.kind != policy.data.benchmark
        yield Code.DIVISION, policy.divides and not policy.data.settings.get("manifest")
    if not sharing(plan):
        return  # nothing is released
    # nobody knows which projection made a file of features
    yield Code.BENCHMARK, bool(policy.data.features) and plan.mechanism.metric != "plain"
    yield Code.MECHANISM, plan.mechanism.kind not in allow.mechanisms
    yield Code.GUARANTEE, order.index(expected_level(plan)) > order.index(Level(allow.guarantee))
    yield Code.EPSILON, not plan.budget.epsilon <= policy.budget.epsilon
    if policy.budget.divided:
        apart, selection = policy.budget.selection * policy.budget.epsilon, selection_cost(plan)
        yield Code.SELECTION, selection > apart * (1 + HAIR)
        yield Code.EPSILON, plan.budget.epsilon - selection > (policy.budget.epsilon - apart) * (1 + HAIR)
    yield Code.DELTA, not plan.budget.delta <= policy.budget.delta
    yield Code.ADJACENCY, plan.budget.adjacency != policy.budget.adjacency
    yield Code.SIMULATION, plan.release.noise != Noise.SYSTEM and not allow.simulation
    # sums hide no count where counts are exact and published, and have no min_count that could stay out
    published = plan.budget.adjacency == Adjacency.REPLACE_SAME_LABEL
    yield Code.MIN_CLASS_COUNT, published and plan.release.min_count < allow.min_class_count


def selection_cost(plan: Plan) -> float:
    """The ε of all the plan's selections, which are pure events beside its Gaussian noise."""
    if plan.mechanism.kind not in SELECTS:
        return 0.0
    kept = Groups.of(plan.model.dim, plan.mechanism.keep).kept
    beside = focus_of(plan).plan(Budget(plan.budget.epsilon, plan.budget.delta), plan.releases, kept).beside
    return beside.epsilon if beside else 0.0
