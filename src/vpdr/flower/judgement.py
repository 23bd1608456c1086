"""Does a plan stay within a policy? Decided from the two texts alone, before any data are touched."""

from collections.abc import Iterator

from vpdr.flower.policy import Policy
from vpdr.flower.refusals import Code, Refused
from vpdr.plan.combinations import expected_level, sharing
from vpdr.plan.plan import Plan
from vpdr.privacy import Adjacency, Level, Noise


def judge(policy: Policy, plan: Plan) -> None:
    """Refuse a plan that asks for more than the owner allows.

    Guarantee: what passes can spend at most the policy's (ε, δ) by its own calibration; the ledger of the
    owner counts every release besides, so runs that each stay within it cannot pass it together.
    """
    for code, wrong in _faults(policy, plan):
        if wrong:
            raise Refused(code, f"the plan goes beyond the policy of {policy.name}")


def _faults(policy: Policy, plan: Plan) -> Iterator[tuple[Code, bool]]:
    allow, order = policy.allow, list(Level)
    yield Code.ROUNDS, plan.run.rounds > allow.rounds
    if policy.data.benchmark:
        yield Code.BENCHMARK, plan.benchmark.kind != policy.data.benchmark
    if not sharing(plan):
        return  # nothing is released
    yield Code.MECHANISM, plan.mechanism.kind not in allow.mechanisms
    yield Code.GUARANTEE, order.index(expected_level(plan)) > order.index(Level(allow.guarantee))
    yield Code.EPSILON, not plan.budget.epsilon <= policy.budget.epsilon
    yield Code.DELTA, not plan.budget.delta <= policy.budget.delta
    yield Code.ADJACENCY, plan.budget.adjacency != policy.budget.adjacency
    yield Code.SIMULATION, plan.release.noise != Noise.SYSTEM and not allow.simulation
    # sums hide no count where counts are exact and published, and have no min_count that could stay out
    published = plan.budget.adjacency == Adjacency.REPLACE_SAME_LABEL
    yield Code.MIN_CLASS_COUNT, published and plan.release.min_count < allow.min_class_count
