"""DP-SGD: the encoder is trained on private samples, and every step is charged like a release.

The algorithm, top to bottom: the budget is split between releases and training
(`split_budget_with_training`). Each round charges its steps to the ledger first (`DpSgdTrainer.train_round`).
In a step every sample's gradient is computed on its own (`per_sample_gradients`), clipped and summed
(`sum_clipped_gradients`), noise is added to the sum (`DpSgdConfig.noisy_mean`), and the optimiser follows
the noisy mean. Every sample takes part in every step: no subsampling. docs/privacy.md, section 14, has the
proof.
"""

import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import nn

from vpdr import privacy
from vpdr.encoder.personal import PersonalEncoder, SeededDropout
from vpdr.mechanisms import base, igpp, vpp
from vpdr.privacy import Adjacency, EncoderKind, GaussianEvent, Ledger
from vpdr.rng import Grid
from vpdr.types import Bool, Float, Int, Int64, Losses, Tensor, TrainBatch
from vpdr.validation import InvalidInput, at_least, positive

GradientFn: TypeAlias = Callable[[Float[Tensor, ""]], list[Float[Tensor, "b ..."]]]
LossFn: TypeAlias = Callable[[TrainBatch], Losses]

# how far one sample can move a sum of vectors of norm at most 1
SUM_SENSITIVITY = {Adjacency.REPLACE_SAME_LABEL: 2.0, Adjacency.REPLACE_ONE: 2.0, Adjacency.ADD_REMOVE: 1.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class DpSgdConfig:
    """The settings of DP-SGD with full batches.

    Guarantee: one step is one Gaussian event of `noise_multiplier` under `adjacency`, given that each
    gradient is a function of its own sample, of public numbers and of earlier steps (docs/privacy.md, section
    14). No number but the noisy sum depends on the data, not even the number of samples.
    """

    clip_norm: float  # C, the l2 norm to which a sample's gradient over all parameters together is clipped
    noise_multiplier: float  # of one step, relative to the sensitivity of the sum
    steps_per_round: int  # E
    total_steps: int  # of the whole run; more would spend the releases' share of the budget
    expected_batch_size: float  # the public number by which the noisy sum is divided
    adjacency: Adjacency = Adjacency.REPLACE_SAME_LABEL
    last_round: int | None = None  # no release follows the training of a later round; None: not known

    def __post_init__(self) -> None:
        base.check_clip_norm(self.clip_norm)
        positive(expected_batch_size=self.expected_batch_size)
        at_least(1, steps_per_round=self.steps_per_round, total_steps=self.total_steps)
        GaussianEvent(self.noise_multiplier)
        object.__setattr__(self, "adjacency", privacy.guarantee.parse_enum(Adjacency, self.adjacency))

    def round_receipt(self, noise: base.NoiseSource) -> privacy.Receipt:
        """The cost of the steps of one round: one event for each step."""
        counts_are_private = self.adjacency is not Adjacency.REPLACE_SAME_LABEL
        terms = base.guarantee_terms(
            self.adjacency,
            EncoderKind.DP_TRAINED,
            noise,
            privacy.guarantee.SensitivityBasis.PROVED,
            counts_are_private,
            is_exact=True,
        )
        events = (GaussianEvent(self.noise_multiplier),) * self.steps_per_round
        return privacy.Receipt(events=events, terms=terms, purpose=privacy.ChargePurpose.TRAINING)

    @property
    def grid(self) -> Grid:
        """The grid of the clipped gradients."""
        return Grid.for_noise(self.clip_norm, self.noise_multiplier * self.clip_norm)

    def noisy_mean(
        self, sums: Sequence[Int64[Tensor, "..."]], event: GaussianEvent, noise: base.NoiseSource
    ) -> list[Float[Tensor, "..."]]:
        """The noisy mean gradient, from sums of clipped gradients on the grid and one event that was charged."""
        std = torch.tensor(event.noise_multiplier * SUM_SENSITIVITY[self.adjacency] * self.clip_norm).double()
        noisy = [base.add_gaussian(each, std.expand(each.shape), self.grid, noise) for each in sums]
        return [each / self.expected_batch_size for each in noisy]


def split_budget_with_training(
    mechanism: base.Mechanism,
    *,
    releases: int,
    rounds: int,
    steps_per_round: int,
    training_share: float,
    clip_norm: float,
    expected_batch_size: float,
) -> tuple[base.Mechanism, DpSgdConfig]:
    """Split the precision of a calibrated mechanism between its releases and DP-SGD.

    The mechanism, `Igpp` or `Vpp`, is calibrated to the whole budget for its `releases`; it gets more noise.
    `training_share`, in (0, 1), is the part of the precision for training. The encoder is trained between two
    releases only: what is trained after the last one, in the remaining `rounds`, would be of no use to anybody else.

    Guarantee: precisions 1/σ² of Gaussian events add up under every accountant, and all planned events
    together have the precision that the mechanism alone had, so they cost what it would have cost.
    """
    if not isinstance(mechanism, igpp.Igpp | vpp.Vpp):
        raise InvalidInput(
            f"train.privacy=dpsgd shares a budget with igpp or vpp, got {type(mechanism).__name__.lower()}"
        )
    if releases < 2:
        raise InvalidInput(f"train.privacy=dpsgd trains between releases and needs at least two, got {releases}")
    single_release, steps = mechanism.noise_multiplier / math.sqrt(releases), (releases - 1) * steps_per_round
    training = DpSgdConfig(
        clip_norm=clip_norm,
        noise_multiplier=single_release * math.sqrt(steps / training_share),
        steps_per_round=steps_per_round,
        total_steps=steps,
        expected_batch_size=expected_batch_size,
        adjacency=mechanism.adjacency,
        last_round=rounds - 1,
    )
    release_multiplier = mechanism.noise_multiplier / math.sqrt(1 - training_share)
    return replace(mechanism, noise_multiplier=release_multiplier), training


class DpSgdTrainer:
    """Trains the encoder, together with a linear head of its own, by DP-SGD.

    Nothing else uses the head. `batch_size` is how many samples are processed at once; it changes a step by
    rounding only. `optimiser` makes the optimiser of a module's parameters.

    Guarantee: encoder, head and optimiser are functions of public numbers, of the broadcasts, and of noisy
    sums that were charged to the ledger before they were computed. The personal head, which is trained
    without privacy, is never used here.
    """

    def __init__(
        self,
        encoder: PersonalEncoder,
        head: nn.Linear,
        config: DpSgdConfig,
        *,
        batch_size: int,
        optimiser: Callable[[nn.Module], torch.optim.Optimizer],
    ) -> None:
        if importlib.util.find_spec("opacus") is None:
            raise InvalidInput(
                "train.privacy=dpsgd needs Opacus, which is not installed; run pip install 'vpdr[dpsgd]'"
            )
        self.config = config
        # under add-remove one sample a batch: its rounding must not depend on its place among the others
        self.batch_size = 1 if config.adjacency is Adjacency.ADD_REMOVE else batch_size
        self.model = _EncoderWithHead(encoder, head)
        self.optimiser = optimiser(self.model)
        self.steps_taken = 0  # by the encoder, charged or not

    def encoder_kind(self, ledger: Ledger) -> EncoderKind:
        """What a release may state: DP_TRAINED only if the ledger has every step that the encoder has taken.

        Steps that were charged and lost count as taken: whether they were lost may depend on samples.
        """
        if not self.steps_taken and not ledger.training_steps:
            return EncoderKind.PUBLIC  # as initialised
        return EncoderKind.DP_TRAINED if ledger.training_steps >= self.steps_taken else EncoderKind.PERSONAL

    def train_round(
        self,
        frozen_features: Float[Tensor, "n d"],
        labels: Int[Tensor, " n"],
        loss: LossFn,
        noise: base.NoiseSource,
        ledger: Ledger,
        round: int,
    ) -> bool:
        """Charge the steps of a round, then take them; False where the budget or the plan has none left.

        A failure may lose steps that were charged. As long as the ledger has them, they are not repeated at
        the expense of releases; after a crash that restores an earlier ledger they are charged twice.
        """
        receipt = self.config.round_receipt(noise)
        if ledger.training_steps + len(receipt.events) > self.config.total_steps:
            return False
        try:
            ledger.charge(receipt, round=round, mechanism="DpSgd")
        except privacy.BudgetExceeded:
            return False
        with per_sample_gradients(self.model) as gradients:
            for event in receipt.events:
                if not isinstance(event, GaussianEvent):
                    continue
                sums = self.clipped_gradient_sum(frozen_features, labels, loss, gradients)
                self.steps_taken += 1
                means = self.config.noisy_mean(sums, event, noise)
                for parameter, gradient in zip(self.model.parameters(), means, strict=True):
                    parameter.grad = gradient.to(parameter)
                self.optimiser.step()
                self.optimiser.zero_grad(set_to_none=True)
        return True

    def clipped_gradient_sum(
        self, frozen_features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], loss: LossFn, gradients: GradientFn
    ) -> list[Int64[Tensor, "..."]]:
        """The sum of the clipped gradients of all samples, on the grid.

        Frameworks take means. The mean of a shorter last batch would be over another number, and through
        rounding every gradient would depend on the number of samples: batches are padded to a fixed size.
        """
        sums = [torch.zeros(each.shape, dtype=torch.int64) for each in self.model.parameters()]
        for rows in torch.arange(len(labels)).split(self.batch_size):
            padding = self.batch_size - len(rows)
            inputs = nn.functional.pad(frozen_features[rows], (0, 0, 0, padding))
            batch_labels = nn.functional.pad(labels[rows], (0, padding))
            features, logits = self.model(inputs.clone().requires_grad_())
            terms = loss(TrainBatch(features, logits, batch_labels, inputs, torch.ones(self.batch_size)))
            unused = 0 * logits.sum()  # where a framework ignores the head, its gradients are zero, not None
            per_sample = gradients(self.batch_size * torch.stack(list(terms.values())).sum() + unused)
            is_sample = torch.arange(self.batch_size) < len(rows)
            batch_sums = sum_clipped_gradients(per_sample, is_sample, self.config.clip_norm, self.config.grid)
            sums = [total + part for total, part in zip(sums, batch_sums, strict=True)]
        return sums

    def state_dict(self) -> dict[str, Any]:
        """What must be kept between two rounds, besides the encoder."""
        return {
            "head": self.model.head.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "steps": self.steps_taken,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self.model.head.load_state_dict(state["head"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.steps_taken = int(state["steps"])


class _EncoderWithHead(nn.Module):
    """The encoder and the head that it is trained with; features and logits of a batch."""

    def __init__(self, encoder: PersonalEncoder, head: nn.Linear) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, frozen_features: Float[Tensor, "b d"]) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b c"]]:
        features = self.encoder(frozen_features)
        return features, self.head(features)


@contextmanager
def per_sample_gradients(model: nn.Module) -> Iterator[GradientFn]:
    """A function that turns the loss of one forward pass into the gradient of each row, through Opacus.

    The rows are those of the model's inputs, and the loss must be a sum of terms of one row each: Opacus
    takes what comes back along a row as the gradient of that row. Dropout is off: nothing is random but the
    noise.
    """
    from opacus import GradSampleModule

    model.train()  # Opacus captures activations in training mode only
    for part in model.modules():
        if isinstance(part, SeededDropout):
            part.eval()
    wrapped = GradSampleModule(model, batch_first=True, loss_reduction="sum")
    parameters: list[Any] = list(model.parameters())  # Any: Opacus adds the attribute `grad_sample`

    def gradients(loss: Float[Tensor, ""]) -> list[Float[Tensor, "b ..."]]:
        loss.backward()
        per_sample = [each.grad_sample.detach() for each in parameters]
        wrapped.zero_grad(set_to_none=True)
        return per_sample

    try:
        yield gradients
    finally:
        wrapped.to_standard_module()
        for part in model.modules():
            vars(part).pop("activations", None)  # private
        model.zero_grad(set_to_none=True)
        model.eval()


def sum_clipped_gradients(
    gradients: Sequence[Float[Tensor, "b ..."]], is_sample: Bool[Tensor, " b"], clip_norm: float, grid: Grid
) -> list[Int64[Tensor, "..."]]:
    """The sum over samples of gradients clipped to `clip_norm`, in whole steps of the grid.

    A gradient that is not finite counts as zero: one sample that overflows must not decide the step. Rows
    that are padding (not `is_sample`) are left out.

    Guarantee: one sample moves the sum by at most `SUM_SENSITIVITY` times `clip_norm`, exactly.
    """
    vectors = torch.cat([each.flatten(1) for each in gradients], dim=1)[is_sample].double()
    parts = grid.clip(vectors, clip_norm).sum(dim=0).split([each[0].numel() for each in gradients])
    return [part.view(each.shape[1:]) for part, each in zip(parts, gradients, strict=True)]
