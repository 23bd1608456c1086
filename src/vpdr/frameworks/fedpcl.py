"""FedPCL (Tan et al., NeurIPS 2022): learn by contrast to global and to all clients' prototypes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.checks import one_of, positive
from vpdr.frameworks import ops
from vpdr.frameworks.base import Now, Ordinary, ServerMemory, View
from vpdr.frameworks.denoise import cleaned, told_with
from vpdr.frameworks.pool import Pool, pool
from vpdr.frameworks.wire import packed, unpacked
from vpdr.prototypes import ClassMeans, Summariser
from vpdr.reduction import mean
from vpdr.types import Losses, Prototypes, Step, Summary

ABSENT = ("exclude", "global")


@dataclass(frozen=True, slots=True)
class Sets:
    """The global prototypes, and every client's own set with its gaps filled from them."""

    overall: Prototypes
    members: Prototypes
    owners: Int[Tensor, " q"]  # which set each row of `members` belongs to


@dataclass(frozen=True, kw_only=True, slots=True)
class FedPcl(Ordinary):
    """No classifier loss: features are told apart by their cosine to prototypes."""

    sharpness: float = 0.07  # τ
    absent: str = "exclude"  # what a client predicts with for classes that it does not hold
    summarise: Summariser = ClassMeans()

    def __post_init__(self) -> None:
        positive(sharpness=self.sharpness)
        one_of(ABSENT, absent=self.absent)

    def generate(
        self, uploads: Sequence[Prototypes], memory: ServerMemory, now: Now
    ) -> tuple[Sets, ServerMemory]:
        """Plain averages of each class, and all uploads completed with them (Eq. 3)."""
        told = pool(uploads, now)
        told = Pool(told.prototypes, told.owners, torch.ones_like(told.shares))
        found = cleaned(told, now.classes)
        overall = told_with(found.overall, found.overall)
        return _completed(Pool(found.each, told.owners, told.shares), overall, len(uploads)), memory

    @property
    def by_sample(self) -> bool:
        """Samples are contrasted with prototypes, never with each other."""
        return True

    def losses(self, step: Step, broadcast: Sets) -> Losses:
        """Contrast to the global set, and to each client's set; classes that nobody has are left out."""
        if not len(broadcast.overall.labels):
            return {"global": ops.nothing(step), "local": ops.nothing(step)}
        match = ops.same_class(step.labels, broadcast.overall)
        logits = ops.cosine(step.features, broadcast.overall.vectors) / self.sharpness
        trusted = ops.trust(step, broadcast.overall)
        return {
            "global": mean(-ops.log_share(logits, match) * trusted, step.weights),
            "local": self._local(step, broadcast),
        }

    def _local(self, step: Step, broadcast: Sets) -> Tensor:
        """The mean over clients of the contrast to that client's set."""
        among = broadcast.owners.unique()[:, None] == broadcast.owners
        match = ops.same_class(step.labels, broadcast.members)[:, None] & among
        logits = ops.cosine(step.features, broadcast.members.vectors)[:, None] / self.sharpness
        shares = ops.log_share(logits.masked_fill(~among, -torch.inf), match)
        trusted = ops.trust(step, broadcast.overall)
        return mean(-shares.mean(dim=1) * trusted, step.weights)

    def predict(self, view: View, broadcast: Sets) -> Int[Tensor, " b"]:
        """The nearest of the client's own clean class means, by cosine; the head if it has none."""
        vectors, labels = view.own.vectors, view.own.labels
        if self.absent == "global":
            vectors, labels = _filled(view.own, broadcast.overall)
        if not len(labels):
            return view.logits.argmax(dim=1)
        return labels[ops.cosine(view.features, vectors).argmax(dim=1)]

    def evidence(self, view: View) -> Float[Tensor, "b c"]:
        """The cosine to the client's own class means, as sharp as in the loss: its head learns nothing."""
        if not len(view.own.labels):
            return view.logits
        cosines = ops.cosine(view.features, view.own.vectors).to(view.logits.dtype)
        scores = torch.full_like(view.logits, -torch.inf)
        scores[:, view.own.labels] = cosines / self.sharpness
        return scores

    def anchors(self, broadcast: Sets) -> Prototypes | None:
        """The global prototypes."""
        return broadcast.overall

    def pack(self, broadcast: Sets) -> dict[str, Tensor]:
        """Both sets and the owners."""
        arrays = packed("global", broadcast.overall) | packed("members", broadcast.members)
        return arrays | {"owners": broadcast.owners}

    def unpack(self, arrays: Mapping[str, Tensor]) -> Sets:
        """Both sets and the owners."""
        return Sets(unpacked("global", arrays), unpacked("members", arrays), arrays["owners"])


def _completed(told: Pool, overall: Prototypes, clients: int) -> Sets:
    """Each client's prototypes, and the global one where it has none."""
    parts, owners = [ops.single(told.prototypes)], [told.owners]
    for client in range(clients):
        own = told.prototypes.labels[told.owners == client]
        lacking = ~torch.isin(overall.labels, own)
        parts.append(Prototypes(overall.vectors[lacking], overall.labels[lacking]))
        owners.append(torch.full((int(lacking.sum()),), client))
    return Sets(overall, Prototypes.concat(parts), torch.cat(owners))


def _filled(own: Summary, overall: Prototypes) -> tuple[Float[Tensor, "k d"], Int[Tensor, " k"]]:
    """A client's class means, and the global ones for classes that it does not hold."""
    lacking = ~torch.isin(overall.labels, own.labels)
    given = overall.vectors[lacking].type_as(own.vectors)
    return torch.cat([own.vectors, given]), torch.cat([own.labels, overall.labels[lacking]])
