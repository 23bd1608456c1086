"""Distillation-guided Clipping Regularisation (Sec. 4.3): keep feature norms near the clip norm."""

import copy
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vpdr.errors import InvalidInput
from vpdr.finetune.base import Guide
from vpdr.reduction import mean

TEACHER_INITS = ("start", "after_round_1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Dcr:
    """Soft clipping, and a slow copy of the head that keeps the student from undoing it."""

    idle: ClassVar[bool] = False

    clip_norm: float  # R
    softness: float = 0.05  # γ
    decay: float = 0.999  # β
    temperature: float = 4.0  # τ
    weight: float = 0.05  # λ₁
    expand: bool = True  # whether short features grow; the released code never lets them
    kd_tau2: bool = False  # whether the distillation is multiplied by τ²
    warmup_steps: int = 0  # steps of a client's life without distillation
    ema_while_waiting: bool = True  # whether the teacher follows during these steps
    bias_correction: bool = False  # whether the teacher forgets the head it started from
    teacher_init: str = "start"

    def __post_init__(self) -> None:
        positive = (
            ("clip_norm", self.clip_norm),
            ("softness", self.softness),
            ("temperature", self.temperature),
        )
        for name, value in positive:
            if not value > 0:
                raise InvalidInput(f"{name} must be positive, got {value:g}")
        if not 0 <= self.decay < 1:
            raise InvalidInput(f"decay must lie in [0, 1), got {self.decay:g}")
        if not min(self.weight, self.warmup_steps) >= 0:
            raise InvalidInput("weight and warmup_steps must not be negative")
        if self.teacher_init not in TEACHER_INITS:
            allowed = ", ".join(TEACHER_INITS)
            raise InvalidInput(f"teacher_init must be one of {allowed}, got {self.teacher_init!r}")

    def guide(self, head: nn.Module) -> "DcrGuide":
        """A guide whose teacher is a copy of this head."""
        return DcrGuide(self, head)


class DcrGuide(Guide):
    """A momentum teacher that judges raw features while the student sees soft-clipped ones."""

    def __init__(self, dcr: Dcr, head: nn.Module) -> None:
        super().__init__()
        self.dcr = dcr
        self.teacher = copy.deepcopy(head).requires_grad_(False).eval()
        self._steps, self._averaged, self._rounds = 0, 0, 0

    def reshape(self, z: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        """Soft clipping (Eq. 15): short vectors grow towards the clip norm, long ones shrink to it."""
        radius = self.dcr.clip_norm
        factor: Tensor = radius / (z.norm(dim=1, keepdim=True) + self.dcr.softness * radius)
        return z * (factor if self.dcr.expand else factor.clamp(max=1))

    def loss(
        self, z: Float[Tensor, "b d"], logits: Float[Tensor, "b c"], weights: Float[Tensor, " b"]
    ) -> Float[Tensor, ""]:
        """λ₁ times the KL from the teacher on raw features to the student on clipped ones (Eq. 17)."""
        if self._waiting:
            return logits.new_zeros(())
        target = (self._judge(z) / self.dcr.temperature).log_softmax(dim=1)
        guess = (logits / self.dcr.temperature).log_softmax(dim=1)
        divergence = (target.exp() * (target - guess)).sum(dim=1)
        scale = self.dcr.temperature**2 if self.dcr.kd_tau2 else 1.0
        return self.dcr.weight * scale * mean(divergence, weights)

    @torch.no_grad()
    def follow(self, head: nn.Module) -> None:
        """θᵗ ← β θᵗ + (1 - β) θ, after every optimiser step (Eq. 16)."""
        if self.dcr.ema_while_waiting or not self._waiting:
            self._averaged += 1
            self._move(head, self._rate)
        self._steps += 1

    @torch.no_grad()
    def settle(self, head: nn.Module) -> None:
        """Count the round; where the teacher is to start after the first one, it starts here."""
        self._rounds += 1
        if self._rounds == 1 and self._starts_late:
            self._averaged = 0
            self._move(head, 1.0)

    @torch.no_grad()
    def gap(
        self, z: Float[Tensor, "b d"], logits: Float[Tensor, "b c"], weights: Float[Tensor, " b"]
    ) -> Float[Tensor, ""]:
        """The mean absolute difference per logit between teacher and student."""
        return mean((self._judge(z) - logits).abs().mean(dim=1), weights)

    def train(self, mode: bool = True) -> "DcrGuide":
        """The teacher stays in evaluation mode whatever happens around it."""
        super().train(mode)
        self.teacher.eval()
        return self

    def get_extra_state(self) -> Tensor:
        """Steps, averaged steps and rounds so far."""
        return torch.tensor([self._steps, self._averaged, self._rounds])

    def set_extra_state(self, state: Tensor) -> None:
        """Continue where a saved guide stopped."""
        self._steps, self._averaged, self._rounds = state.tolist()

    @property
    def _starts_late(self) -> bool:
        return self.dcr.teacher_init == "after_round_1"

    @property
    def _waiting(self) -> bool:
        return self._steps < self.dcr.warmup_steps or (self._starts_late and not self._rounds)

    @property
    def _rate(self) -> float:
        """How far the teacher moves; corrected for its start, it is a mean of heads after steps only."""
        rest = 1 - self.dcr.decay
        return rest / (1 - self.dcr.decay**self._averaged) if self.dcr.bias_correction else rest

    @torch.no_grad()
    def _judge(self, z: Float[Tensor, "b d"]) -> Float[Tensor, "b c"]:
        logits: Tensor = self.teacher(z)
        return logits

    def _move(self, head: nn.Module, rate: float) -> None:
        for slow, fast in zip(self.teacher.parameters(), head.parameters(), strict=True):
            slow.lerp_(fast, rate)
        for kept, given in zip(self.teacher.buffers(), head.buffers(), strict=True):
            kept.copy_(given)
