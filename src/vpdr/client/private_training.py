"""An encoder that learns from private samples, and whose learning is paid for like a release."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vpdr.client.by_sample import Gradients, by_sample, require_opacus
from vpdr.client.parts import Habits, Promise, Samples
from vpdr.encoder import PersonalEncoder
from vpdr.encoder.adapters import seeded_linear
from vpdr.mechanisms import NoiseSource
from vpdr.mechanisms.gradients import PrivateSteps, clipped_sums
from vpdr.privacy import Adjacency, BudgetExceeded, EncoderKind, Gaussian, Ledger
from vpdr.types import Losses, Step

LossOf: TypeAlias = Callable[[Step], Losses]


class PrivateTrainer:
    """It alone moves the encoder, together with a linear head that nothing else uses.

    Guarantee: encoder, head and optimiser are functions of public numbers, of the broadcasts, and of noisy
    sums that were charged to the ledger before they were made. The personal head, which is trained without
    privacy, is never seen here.
    """

    def __init__(self, encoder: PersonalEncoder, plan: PrivateSteps, habits: Habits, head: nn.Linear) -> None:
        require_opacus()
        # where a sample can go, the others move up: rounding must not tell, whatever a server's loss is
        self.plan, self.rows = plan, 1 if plan.adjacency is Adjacency.ADD_REMOVE else habits.batch
        self.model = _Both(encoder, head)
        self.optimiser = habits.optimiser(self.model)
        self.steps = 0  # that the encoder has taken, paid or not

    def kind(self, ledger: Ledger) -> EncoderKind:
        """What a release may say: accounted only if the ledger has every step that the encoder has taken.

        Steps that were paid and lost count as taken: whether they were lost, samples may have decided.
        """
        if not self.steps and not ledger.steps:
            return EncoderKind.PUBLIC  # as it was drawn
        return EncoderKind.ACCOUNTED if ledger.steps >= self.steps else EncoderKind.PERSONAL

    def learn(self, samples: Samples, loss: LossOf, noise: NoiseSource, ledger: Ledger, t: int) -> bool:
        """Pay for the steps of a round, then take them; without budget the encoder stays as it is.

        A failure may lose steps that were paid for. As long as this ledger has them, they are not repeated at
        the expense of releases; a crash that takes a run's ledger back lets them be paid for twice.
        """
        receipt = self.plan.receipt(noise)
        if ledger.steps + len(receipt.events) > self.plan.planned:
            return False
        try:
            ledger.charge(receipt, round=t)
        except BudgetExceeded:
            return False
        with by_sample(self.model) as gradients:
            for event in receipt.events:
                if isinstance(event, Gaussian):
                    self._step(self.summed(samples, loss, gradients), event, noise)
        return True

    def summed(self, samples: Samples, loss: LossOf, gradients: Gradients) -> list[Float[Tensor, "..."]]:
        """The clipped gradients of all samples, added up."""
        sums = [torch.zeros(each.shape, dtype=torch.float64) for each in self.model.parameters()]
        for rows in torch.arange(len(samples.labels)).split(self.rows):
            found = gradients(self._loss(samples, rows, loss))
            real = torch.arange(self.rows) < len(rows)
            sums = [
                old + new
                for old, new in zip(sums, clipped_sums(found, real, self.plan.clip_norm), strict=True)
            ]
        return sums

    def _loss(self, samples: Samples, rows: Int[Tensor, " b"], loss: LossOf) -> Float[Tensor, ""]:
        """The sum over a batch that always has the same number of rows.

        Frameworks take means. Were a last batch shorter, its mean would be over another number, and rounding
        would let every gradient depend on how many samples there are.
        """
        public = samples.public.new_zeros(self.rows, samples.public.shape[1])
        labels = samples.labels.new_zeros(self.rows)
        public[: len(rows)], labels[: len(rows)] = samples.public[rows], samples.labels[rows]
        features, logits = self.model(public.clone().requires_grad_())
        terms = loss(Step(features, logits, labels, public, torch.ones(self.rows)))
        unused = 0 * logits.sum()  # where a framework ignores the head, its gradients are zero, not absent
        total: Tensor = self.rows * torch.stack(list(terms.values())).sum() + unused
        return total

    def _step(self, sums: list[Float[Tensor, "..."]], event: Gaussian, noise: NoiseSource) -> None:
        self.steps += 1
        found = self.plan.noisy_mean(sums, event, noise)
        for parameter, gradient in zip(self.model.parameters(), found, strict=True):
            parameter.grad = gradient.to(parameter)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        """What must survive between two rounds, besides the encoder."""
        return {
            "head": self.model.head.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "steps": self.steps,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self.model.head.load_state_dict(state["head"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.steps = int(state["steps"])


def trainer_of(
    promise: Promise, encoder: PersonalEncoder, habits: Habits, dim: int, rng: torch.Generator
) -> PrivateTrainer | None:
    """The trainer that a promise asks for, before the first round; its head is drawn from a public stream."""
    if promise.training is None:
        return None
    return PrivateTrainer(encoder, promise.training, habits, seeded_linear(dim, habits.classes, rng=rng))


class _Both(nn.Module):
    """The encoder and the head that it is trained with."""

    def __init__(self, encoder: PersonalEncoder, head: nn.Linear) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, public: Float[Tensor, "b d"]) -> tuple[Float[Tensor, "b d"], Float[Tensor, "b c"]]:
        """Features and scores of a batch."""
        features = self.encoder(public)
        return features, self.head(features)
