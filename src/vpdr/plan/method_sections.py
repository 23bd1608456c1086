"""The parts of a plan that make the method: framework, mechanism, regulariser."""

from dataclasses import dataclass, field, fields
from typing import Any

from vpdr.checks import at_least, not_negative, one_of
from vpdr.finetune import Dcr
from vpdr.mechanisms import Focus
from vpdr.mechanisms.clipping import check_clip_norm
from vpdr.mechanisms.rapp import SHARES, Stages, parsed_shares

METRICS = ("plain", "projection")
_FOCUS, _DCR = Focus(), Dcr(clip_norm=1.0)  # where their defaults are stated


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkSection:
    """Which framework, and options under its own name: framework.fedproto.weight = 0.1."""

    kind: str = "fedproto"
    options: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class MechanismSection:
    """How prototypes are made private; what a mechanism does not know it does not read."""

    kind: str = "igpp"
    clip_norm: float = 5.0  # R
    keep: float = _FOCUS.keep  # ρ
    cap: float = _FOCUS.cap  # H
    share: float = _FOCUS.share  # r
    selection: str = _FOCUS.selection
    accumulate: bool = False  # igpp: send the mean of all releases so far
    stages: str = ",".join(f"{100 * part:g}" for part in SHARES)  # rapp: budget of each stage, in any unit
    per_class: int = 1  # rapp: centres of a class
    metric: str = (
        "plain"  # rapp: where noise goes; projection: more along what the frozen projection stretches
    )
    release_dim: int = 0  # rapp: dimensions of the release; 0: by `expected`, or all
    expected: int = 0  # rapp: samples of a class at a client as everybody may know them; 0: not declared

    def __post_init__(self) -> None:
        check_clip_norm(self.clip_norm)
        at_least(1, per_class=self.per_class)
        one_of(METRICS, metric=self.metric)
        not_negative(release_dim=self.release_dim, expected=self.expected)
        Stages(releases=1, shares=parsed_shares(self.stages))


@dataclass(frozen=True, kw_only=True, slots=True)
class RegulariserSection:
    """What is added to fine-tuning; the clip norm is the mechanism's."""

    kind: str = "plain"
    softness: float = _DCR.softness  # γ
    decay: float = _DCR.decay  # β
    temperature: float = _DCR.temperature  # τ
    weight: float = _DCR.weight  # λ₁
    expand: bool = _DCR.expand
    kd_tau2: bool = _DCR.kd_tau2
    warmup_steps: int = _DCR.warmup_steps
    ema_while_waiting: bool = _DCR.ema_while_waiting
    bias_correction: bool = _DCR.bias_correction
    teacher_init: str = _DCR.teacher_init

    @property
    def settings(self) -> list[str]:
        """The names of DCR's own settings."""
        return [each.name for each in fields(self) if each.name != "kind"]
