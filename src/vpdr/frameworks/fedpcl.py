"""FedPCL (Tan et al., NeurIPS 2022): contrastive learning with global and with all clients' prototypes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.frameworks.aggregation import denoise_uploads, pool_uploads, to_float32_without_variances, with_reliability
from vpdr.frameworks.base import (
    FrameworkBase,
    FrameworkState,
    PredictionInputs,
    ServerContext,
    prototypes_from_arrays,
    prototypes_to_arrays,
)
from vpdr.frameworks.losses import (
    cosine_similarity,
    log_positive_mass,
    same_class_mask,
    sample_reliability,
    weighted_mean,
    zero_loss,
)
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Losses, Prototypes, Summary, TrainBatch
from vpdr.validation import one_of, positive

MISSING_CLASS_RULES = ("exclude", "global")


@dataclass(frozen=True, slots=True)
class FedPclBroadcast:
    """The global prototypes, and every client's set with missing classes filled from them."""

    global_prototypes: Prototypes
    client_prototypes: Prototypes
    client_index: Int[Tensor, " q"]  # the client of each row of `client_prototypes`


@dataclass(frozen=True, kw_only=True, slots=True)
class FedPcl(FrameworkBase):
    """Contrastive losses on the cosine of features and prototypes, without a classifier loss.

    Args:
        temperature: τ, the temperature that cosines are divided by.
        missing_class_rule: how a client predicts classes that it does not hold: `exclude` never predicts
            them, `global` uses the global prototype.
        summariser: how clients make prototypes.
    """

    loss_is_per_sample: ClassVar[bool] = True  # samples are contrasted with prototypes, never with each other

    temperature: float = 0.07
    missing_class_rule: str = "exclude"
    summariser: Summariser = ClassMeans()

    def __post_init__(self) -> None:
        positive(temperature=self.temperature)
        one_of(MISSING_CLASS_RULES, missing_class_rule=self.missing_class_rule)

    def aggregate(
        self, uploads: Sequence[Prototypes], state: FrameworkState, context: ServerContext
    ) -> tuple[FedPclBroadcast, FrameworkState]:
        """Unweighted averages of each class, and each client's upload completed with them (Eq. 3)."""
        pooled = pool_uploads(uploads, context)
        pooled = replace(pooled, weights=torch.ones_like(pooled.weights))
        denoised = denoise_uploads(pooled, context.classes)
        global_prototypes = with_reliability(denoised.class_prototypes, denoised.class_prototypes)
        parts, client_index = [to_float32_without_variances(denoised.prototypes)], [pooled.upload_index]
        for client in range(len(uploads)):
            own_labels = denoised.prototypes.labels[pooled.upload_index == client]
            missing = ~torch.isin(global_prototypes.labels, own_labels)
            parts.append(Prototypes(global_prototypes.vectors[missing], global_prototypes.labels[missing]))
            client_index.append(torch.full((int(missing.sum()),), client))
        return FedPclBroadcast(global_prototypes, Prototypes.concat(parts), torch.cat(client_index)), state

    def losses(self, batch: TrainBatch, broadcast: FedPclBroadcast) -> Losses:
        """Contrast with the global set and with each client's set; classes without a prototype add 0."""
        prototypes = broadcast.global_prototypes
        if not len(prototypes.labels):
            return {"global": zero_loss(batch), "local": zero_loss(batch)}
        logits = cosine_similarity(batch.features, prototypes.vectors) / self.temperature
        log_prob = log_positive_mass(logits, same_class_mask(batch.labels, prototypes))
        reliability = sample_reliability(batch, prototypes)
        return {
            "global": weighted_mean(-log_prob * reliability, batch.weights),
            "local": self._client_contrast_loss(batch, broadcast),
        }

    def _client_contrast_loss(self, batch: TrainBatch, broadcast: FedPclBroadcast) -> Tensor:
        """The mean over clients of the contrast with that client's set."""
        in_set = broadcast.client_index.unique()[:, None] == broadcast.client_index
        match = same_class_mask(batch.labels, broadcast.client_prototypes)[:, None] & in_set
        similarity = cosine_similarity(batch.features, broadcast.client_prototypes.vectors)[:, None]
        logits = (similarity / self.temperature).masked_fill(~in_set, -torch.inf)
        log_prob = log_positive_mass(logits, match)
        reliability = sample_reliability(batch, broadcast.global_prototypes)
        return weighted_mean(-log_prob.mean(dim=1) * reliability, batch.weights)

    def predict(self, inputs: PredictionInputs, broadcast: FedPclBroadcast) -> Int[Tensor, " b"]:
        """The class mean of the client with the largest cosine; the head if the client has none."""
        vectors, labels = inputs.own_class_means.vectors, inputs.own_class_means.labels
        if self.missing_class_rule == "global":
            vectors, labels = _fill_missing_classes(inputs.own_class_means, broadcast.global_prototypes)
        if not len(labels):
            return inputs.logits.argmax(dim=1)
        return labels[cosine_similarity(inputs.features, vectors).argmax(dim=1)]

    def personal_logits(self, inputs: PredictionInputs) -> Float[Tensor, "b c"]:
        """The cosine with the client's class means over τ, since the loss does not train the head."""
        means = inputs.own_class_means
        if not len(means.labels):
            return inputs.logits
        similarity = cosine_similarity(inputs.features, means.vectors).to(inputs.logits.dtype)
        logits = torch.full_like(inputs.logits, -torch.inf)
        logits[:, means.labels] = similarity / self.temperature
        return logits

    def global_prototypes(self, broadcast: FedPclBroadcast) -> Prototypes | None:
        """The global prototypes."""
        return broadcast.global_prototypes

    def pack(self, broadcast: FedPclBroadcast) -> dict[str, Tensor]:
        """Both sets and the client of each row."""
        return {
            **prototypes_to_arrays("global", broadcast.global_prototypes),
            **prototypes_to_arrays("members", broadcast.client_prototypes),
            "owners": broadcast.client_index,
        }

    def unpack(self, arrays: Mapping[str, Tensor]) -> FedPclBroadcast:
        """Both sets and the client of each row."""
        return FedPclBroadcast(
            prototypes_from_arrays("global", arrays), prototypes_from_arrays("members", arrays), arrays["owners"]
        )


def _fill_missing_classes(
    own_class_means: Summary, global_prototypes: Prototypes
) -> tuple[Float[Tensor, "k d"], Int[Tensor, " k"]]:
    """A client's class means, and the global prototypes of classes that it does not hold."""
    missing = ~torch.isin(global_prototypes.labels, own_class_means.labels)
    vectors = global_prototypes.vectors[missing].type_as(own_class_means.vectors)
    return torch.cat([own_class_means.vectors, vectors]), torch.cat(
        [own_class_means.labels, global_prototypes.labels[missing]]
    )
