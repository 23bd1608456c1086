"""FedPCL (Tan et al., NeurIPS 2022): contrastive learning with global and with all clients' prototypes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from vpdr.frameworks import aggregation, base
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.types import Float, Int, Losses, Prototypes, Tensor, TrainBatch
from vpdr.validation import one_of, positive


@dataclass(frozen=True, slots=True)
class FedPclBroadcast:
    """The global prototypes, and every client's set with missing classes filled from them."""

    global_prototypes: Prototypes
    client_prototypes: Prototypes
    client_index: Int[Tensor, " q"]  # the client of each row of `client_prototypes`


@dataclass(frozen=True, kw_only=True, slots=True)
class FedPcl(base.Framework[FedPclBroadcast]):
    """Contrastive losses on the cosine of features and prototypes, without a classifier loss."""

    loss_is_per_sample: ClassVar[bool] = True  # samples are contrasted with prototypes, never with each other

    temperature: float = 0.07  # τ, which cosines are divided by
    missing_class_rule: str = "exclude"  # classes without samples: never predicted, or by the `global` prototype
    summariser: Summariser = ClassMeans()

    def __post_init__(self) -> None:
        positive(temperature=self.temperature)
        one_of(("exclude", "global"), missing_class_rule=self.missing_class_rule)

    def uses_weights(self, *, has_variances: bool) -> bool:
        return False  # averages are unweighted

    def aggregate(
        self, uploads: Sequence[Prototypes], state: base.FrameworkState, context: base.ServerContext
    ) -> tuple[FedPclBroadcast, base.FrameworkState]:
        """Unweighted averages of each class, and each client's upload completed with them (Eq. 3)."""
        pooled = aggregation.pool_uploads(uploads, context)
        pooled = replace(pooled, weights=torch.ones_like(pooled.weights))
        denoised = aggregation.denoise_uploads(pooled, context.classes)
        averages = aggregation.with_reliability(denoised.class_prototypes, denoised.class_prototypes)
        parts, client_index = [aggregation.to_float32_without_variances(denoised.prototypes)], [pooled.upload_index]
        for client in range(len(uploads)):
            own_labels = denoised.prototypes.labels[pooled.upload_index == client]
            missing = ~torch.isin(averages.labels, own_labels)
            parts.append(Prototypes(averages.vectors[missing], averages.labels[missing]))
            client_index.append(torch.full((int(missing.sum()),), client))
        return FedPclBroadcast(averages, Prototypes.concat(parts), torch.cat(client_index)), state

    def losses(self, batch: TrainBatch, broadcast: FedPclBroadcast) -> Losses:
        """Contrast with the global set and, in the mean over clients, with each client's set.

        Classes without a prototype add 0.
        """
        averages, client_sets = broadcast.global_prototypes, broadcast.client_prototypes
        if not len(averages.labels):
            return {"global": base.zero_loss(batch), "local": base.zero_loss(batch)}
        reliability = base.sample_reliability(batch, averages)
        logits = base.cosine_similarity(batch.features, averages.vectors) / self.temperature
        global_log_prob = base.log_positive_mass(logits, base.same_class_mask(batch.labels, averages))
        in_set = broadcast.client_index.unique()[:, None] == broadcast.client_index
        is_positive = base.same_class_mask(batch.labels, client_sets)[:, None] & in_set
        similarity = base.cosine_similarity(batch.features, client_sets.vectors)[:, None]
        logits = (similarity / self.temperature).masked_fill(~in_set, -torch.inf)
        local_log_prob = base.log_positive_mass(logits, is_positive).mean(dim=1)
        return {
            "global": base.weighted_mean(-global_log_prob * reliability, batch.weights),
            "local": base.weighted_mean(-local_log_prob * reliability, batch.weights),
        }

    def predict(self, inputs: base.PredictionInputs, broadcast: FedPclBroadcast) -> Int[Tensor, " b"]:
        """The class mean of the client with the largest cosine; the head if the client has none."""
        vectors, labels = inputs.own_class_means.vectors, inputs.own_class_means.labels
        if self.missing_class_rule == "global":
            averages = broadcast.global_prototypes
            missing = ~torch.isin(averages.labels, labels)
            vectors = torch.cat([vectors, averages.vectors[missing].type_as(vectors)])
            labels = torch.cat([labels, averages.labels[missing]])
        if not len(labels):
            return inputs.logits.argmax(dim=1)
        return labels[base.cosine_similarity(inputs.features, vectors).argmax(dim=1)]

    def personal_logits(self, inputs: base.PredictionInputs) -> Float[Tensor, "b c"]:
        """The cosine with the client's class means over τ, since the loss does not train the head."""
        means = inputs.own_class_means
        if not len(means.labels):
            return inputs.logits
        similarity = base.cosine_similarity(inputs.features, means.vectors).to(inputs.logits.dtype)
        logits = torch.full_like(inputs.logits, -torch.inf)
        logits[:, means.labels] = similarity / self.temperature
        return logits

    def global_prototypes(self, broadcast: FedPclBroadcast) -> Prototypes | None:
        return broadcast.global_prototypes

    def pack(self, broadcast: FedPclBroadcast) -> dict[str, Tensor]:
        sets = {"global": broadcast.global_prototypes, "members": broadcast.client_prototypes}
        return {**base.prototypes_to_arrays(sets), "owners": broadcast.client_index}

    def unpack(self, arrays: Mapping[str, Tensor]) -> FedPclBroadcast:
        global_set, client_sets = (base.prototypes_from_arrays(prefix, arrays) for prefix in ("global", "members"))
        return FedPclBroadcast(global_set, client_sets, arrays["owners"])
