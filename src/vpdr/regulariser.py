"""Distillation-guided Clipping Regularisation (DCR, Sec. 4.3): keep feature norms near the clip norm.

A regulariser is added to local training and does not change the framework's own losses. It uses private
data on the client only, so it costs no privacy.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import nn

from vpdr.frameworks import weighted_mean
from vpdr.registry import Registry
from vpdr.types import Float, Tensor
from vpdr.validation import at_least, at_least_0_below_1, one_of, positive

TEACHER_INITS = ("start", "after_round_1")  # when the teacher is copied from the head


class RegularisedBatch(NamedTuple):
    """What one batch of a training loop needs from a regulariser."""

    features: Float[Tensor, "b d"]  # transformed; for the head and for losses on features
    logits: Float[Tensor, "b c"]  # of the head on these features
    loss: Float[Tensor, ""]  # the term to add


class Regulariser(nn.Module):
    """The regulariser of one client's head. This base class changes nothing.

    A training loop makes three calls: the regulariser itself on each batch, `after_step` after each step of the
    optimiser, and `after_round` after each round. Override the other methods that your regulariser needs.
    Everything that it has to remember between rounds belongs into its `state_dict`, which is saved with the client.
    """

    def forward(
        self, features: Float[Tensor, "b d"], head: nn.Module, weights: Float[Tensor, " b"] | None = None
    ) -> RegularisedBatch:
        """One batch of raw features: `transform_features`, the head, and `loss`, in one call."""
        transformed = self.transform_features(features)
        logits = head(transformed)
        return RegularisedBatch(transformed, logits, self.loss(features, logits, weights))

    def transform_features(self, features: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        """The features that the framework and the head get in training: same shape, here the same tensor."""
        return features

    def loss(
        self, features: Float[Tensor, "b d"], logits: Float[Tensor, "b c"], weights: Float[Tensor, " b"] | None = None
    ) -> Float[Tensor, ""]:
        """The term that is added to L_BASE (Eq. 18); here zero.

        Features are raw, logits those of the head on transformed features. A row's weight in the mean is 0 for
        padding; without weights it is 1 for all rows.
        """
        return logits.new_zeros(())

    def after_step(self, head: nn.Module) -> None:
        """Call it after every optimiser step, with the head that was trained."""

    def after_round(self, head: nn.Module) -> None:
        """Call it once after the last step of every round, with the head that was trained."""

    def teacher_student_gap(
        self, features: Float[Tensor, "b d"], logits: Float[Tensor, "b c"], weights: Float[Tensor, " b"] | None = None
    ) -> Float[Tensor, ""]:
        """The mean absolute difference of the teacher's and the student's logits; 0 without a teacher."""
        return logits.new_zeros(())


@runtime_checkable
class RegulariserConfig(Protocol):
    """The settings from which every client makes its own regulariser."""

    is_noop: ClassVar[bool]  # whether it changes nothing: then it has no settings and no teacher

    @classmethod
    def from_config(cls, clip_norm: float, options: Mapping[str, Any]) -> "RegulariserConfig":
        """The settings from R, the clip norm of the mechanism, and those other settings that are parameters."""

    def make_regulariser(self, head: nn.Module) -> Regulariser:
        """A new regulariser for this head."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoRegularisation:
    """Nothing is added to the framework's losses."""

    is_noop: ClassVar[bool] = True

    @classmethod
    def from_config(cls, clip_norm: float, options: Mapping[str, Any]) -> "NoRegularisation":  # noqa: ARG003
        return cls()

    def make_regulariser(self, head: nn.Module) -> Regulariser:
        return Regulariser()


@dataclass(frozen=True, kw_only=True, slots=True)
class Dcr:
    """Settings of DCR: soft clipping, and distillation from a moving average of the head.

    Args:
        clip_norm: R, the clip norm of the mechanism that features should stay near.
        softness: γ of soft clipping (Eq. 15).
        decay: β of the moving average (Eq. 16).
        temperature: τ of the distillation (Eq. 17).
        weight: λ₁, the weight of the distillation (Eq. 18).
        expand: whether features shorter than the clip norm grow; in the released code they do not.
        kd_tau2: whether the distillation is multiplied by τ².
        warmup_steps: steps of a client, over all rounds, without distillation.
        ema_while_waiting: whether the teacher is updated during these steps.
        bias_correction: whether the teacher's initial value is removed from the moving average.
        teacher_init: `start` copies the head at the start, `after_round_1` after the first round.

    Raises:
        InvalidInput: a value is out of range.

    Guarantee: it is used in local training alone, and nothing of it leaves the client: it costs no privacy.

    It works in any PyTorch loop, with three calls:

    >>> encoder, head = nn.Linear(8, 4), nn.Linear(4, 3)
    >>> dcr = Dcr(clip_norm=2.0).make_regulariser(head)
    >>> optimiser = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
    >>> inputs, labels = torch.ones(6, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    >>> for _ in range(3):
    ...     features, logits, penalty = dcr(encoder(inputs), head)
    ...     loss = nn.functional.cross_entropy(logits, labels) + penalty
    ...     optimiser.zero_grad()
    ...     loss.backward()
    ...     optimiser.step()
    ...     dcr.after_step(head)
    >>> dcr.after_round(head)
    >>> bool((features.norm(dim=1) < 2.0).all())
    True
    """

    is_noop: ClassVar[bool] = False

    clip_norm: float
    softness: float = 0.05
    decay: float = 0.999
    temperature: float = 4.0
    weight: float = 0.05
    expand: bool = True
    kd_tau2: bool = False
    warmup_steps: int = 0
    ema_while_waiting: bool = True
    bias_correction: bool = False
    teacher_init: str = "start"

    def __post_init__(self) -> None:
        positive(clip_norm=self.clip_norm, softness=self.softness, temperature=self.temperature)
        at_least_0_below_1(decay=self.decay)
        at_least(0, weight=self.weight, warmup_steps=self.warmup_steps)
        one_of(TEACHER_INITS, teacher_init=self.teacher_init)

    @classmethod
    def from_config(cls, clip_norm: float, options: Mapping[str, Any]) -> "Dcr":
        """As `RegulariserConfig.from_config`: the options are the other arguments of the class."""
        waits = options.get("warmup_steps", 0) > 0 or options.get("teacher_init") == "after_round_1"
        names = [
            name for name in options if waits or name != "ema_while_waiting"
        ]  # an option without effect is not read
        return cls(clip_norm=clip_norm, **{name: options[name] for name in names})

    def make_regulariser(self, head: nn.Module) -> "DcrRegulariser":
        """DCR for one client.

        Args:
            head: the client's classifier; the teacher starts as a copy of it.

        Returns:
            The regulariser, to be called in the training loop as above.
        """
        return DcrRegulariser(self, head)


class DcrRegulariser(Regulariser):
    """DCR on one client: the student gets soft-clipped features, the teacher raw ones."""

    def __init__(self, config: Dcr, head: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.teacher = copy.deepcopy(head).requires_grad_(False).eval()
        self._steps, self._ema_steps, self._rounds = 0, 0, 0

    def transform_features(self, features: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
        """Soft clipping (Eq. 15): short vectors grow towards the clip norm, long ones shrink to it."""
        clip_norm = self.config.clip_norm
        factor: Tensor = clip_norm / (features.norm(dim=1, keepdim=True) + self.config.softness * clip_norm)
        return features * (factor if self.config.expand else factor.clamp(max=1))

    def loss(
        self, features: Float[Tensor, "b d"], logits: Float[Tensor, "b c"], weights: Float[Tensor, " b"] | None = None
    ) -> Float[Tensor, ""]:
        """λ₁ KL(teacher on raw features ‖ student on soft-clipped ones) (Eq. 17); 0 during warm-up."""
        if self._in_warmup:
            return logits.new_zeros(())
        teacher = (self._teacher_logits(features) / self.config.temperature).log_softmax(dim=1)
        student = (logits / self.config.temperature).log_softmax(dim=1)
        divergence = (teacher.exp() * (teacher - student)).sum(dim=1)
        scale = self.config.temperature**2 if self.config.kd_tau2 else 1.0
        return self.config.weight * scale * _mean(divergence, weights)

    @torch.no_grad()
    def after_step(self, head: nn.Module) -> None:
        """Update the teacher, θᵗ ← β θᵗ + (1 - β) θ (Eq. 16)."""
        if self.config.ema_while_waiting or not self._in_warmup:
            self._ema_steps += 1
            rate = 1 - self.config.decay
            if self.config.bias_correction:  # then the teacher is a mean of heads after steps only
                rate = rate / (1 - self.config.decay**self._ema_steps)
            self._update_teacher(head, rate)
        self._steps += 1

    @torch.no_grad()
    def after_round(self, head: nn.Module) -> None:
        """Count the round; with `after_round_1` the teacher is copied after the first one."""
        self._rounds += 1
        if self._rounds == 1 and self.config.teacher_init == "after_round_1":
            self._ema_steps = 0
            self._update_teacher(head, 1.0)

    @torch.no_grad()
    def teacher_student_gap(
        self, features: Float[Tensor, "b d"], logits: Float[Tensor, "b c"], weights: Float[Tensor, " b"] | None = None
    ) -> Float[Tensor, ""]:
        return _mean((self._teacher_logits(features) - logits).abs().mean(dim=1), weights)

    def train(self, mode: bool = True) -> "DcrRegulariser":
        super().train(mode)
        self.teacher.eval()  # always
        return self

    def get_extra_state(self) -> Tensor:
        """Steps, teacher updates and rounds so far."""
        return torch.tensor([self._steps, self._ema_steps, self._rounds])

    def set_extra_state(self, state: Tensor) -> None:
        self._steps, self._ema_steps, self._rounds = state.tolist()

    @property
    def _in_warmup(self) -> bool:
        has_no_teacher = self.config.teacher_init == "after_round_1" and not self._rounds
        return self._steps < self.config.warmup_steps or has_no_teacher

    @torch.no_grad()
    def _teacher_logits(self, features: Float[Tensor, "b d"]) -> Float[Tensor, "b c"]:
        logits: Tensor = self.teacher(features)
        return logits

    def _update_teacher(self, head: nn.Module, rate: float) -> None:
        for average, parameter in zip(self.teacher.parameters(), head.parameters(), strict=True):
            average.lerp_(parameter, rate)
        for copied, buffer in zip(self.teacher.buffers(), head.buffers(), strict=True):
            copied.copy_(buffer)


def _mean(values: Float[Tensor, " b"], weights: Float[Tensor, " b"] | None) -> Float[Tensor, ""]:
    return weighted_mean(values, torch.ones_like(values) if weights is None else weights)


REGULARISERS: Registry[type[RegulariserConfig]] = Registry("regulariser", {"none": NoRegularisation, "dcr": Dcr})
