"""Benchmarks and models that are fine alone and impossible together."""

from typing import TYPE_CHECKING

from vpdr.data import SOURCES
from vpdr.encoder import BACKBONES, PLACEMENTS, PROJECTIONS, families
from vpdr.errors import InvalidInput
from vpdr.plan.values import known

if TYPE_CHECKING:
    from vpdr.plan.plan import Plan

BENCHMARKS = ("quickstart", "synthetic", *SOURCES)
MADE_UP = {"synthetic"}  # features without pictures or texts behind them


def check_data(plan: "Plan") -> None:
    """Refuse data and models that do not exist or do not fit each other."""
    section, model = plan.benchmark, plan.model
    known("benchmark", [section.kind], BENCHMARKS)
    known("backbone", [model.backbone], BACKBONES)
    known("place of adapters", [model.adapters], PLACEMENTS)
    known("projection", [model.projection], PROJECTIONS)
    known("family", [model.family] if model.family else [], families())
    if section.kind in SOURCES:
        known(f"domain of {section.kind}", section.domains, [d.name for d in SOURCES[section.kind].domains])
    if section.per_domain > 1 and section.skew == "pooled":
        raise InvalidInput("a pool is shared by benchmark.clients; leave out benchmark.per_domain")
    if section.kind in MADE_UP:
        _check_made_up(plan)


def _check_made_up(plan: "Plan") -> None:
    section, model = plan.benchmark, plan.model
    if section.per_domain > 1:
        raise InvalidInput(
            f"benchmark {section.kind} has one client a domain; set benchmark.clients, not per_domain"
        )
    if model.family or PLACEMENTS[model.adapters] is not None or PROJECTIONS[model.projection].trained:
        raise InvalidInput(
            f"benchmark {section.kind} has no pictures for a backbone; leave out model.family and a trained "
            "projection, and set model.adapters=last"
        )
