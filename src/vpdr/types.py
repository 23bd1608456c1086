"""The nouns that cross rooms. Shapes: n samples, p prototypes, b batch, c classes, d dimensions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.errors import VpdrError
from vpdr.privacy.ledger import Ledger
from vpdr.privacy.ledger_file import LedgerFile
from vpdr.privacy.terms import Receipt

Losses: TypeAlias = Mapping[str, Float[Tensor, ""]]
Memory: TypeAlias = Mapping[str, Tensor]


@runtime_checkable
class Inputs(Protocol):
    """What a trainable backbone is fed: pictures or tokens of some samples, in memory or on disk. Private."""

    def __len__(self) -> int: ...

    def take(self, rows: Int[Tensor, " m"]) -> "Inputs":
        """The same source with these samples only, in this order; nothing is read yet."""
        ...

    def batch(self, rows: Int[Tensor, " b"], rng: torch.Generator | None = None) -> Tensor:
        """These samples as one tensor; with a stream they are augmented, without one they are as they are."""
        ...


@dataclass(frozen=True, slots=True)
class Features:
    """What a client's encoder sees in its own data (Z_m). Private: never leaves the client."""

    vectors: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]


@dataclass(frozen=True, slots=True)
class Summary:
    """Prototypes before noise, with the number of samples behind each. Private."""

    vectors: Float[Tensor, "p d"]
    labels: Int[Tensor, " p"]
    sizes: Int[Tensor, " p"]


@dataclass(frozen=True, slots=True)
class Prototypes:
    """Labelled points in feature space that may be shown to anyone.

    `variances` is the noise per coordinate that a rule chose to publish. It gives away what the noise
    depends on, so it is None wherever that is a count which the server is not meant to have. `on_path` says
    that the features came through a path that was broadcast before; it tells what a client has heard, which
    whoever broadcast it knows.
    """

    vectors: Float[Tensor, "p d"]
    labels: Int[Tensor, " p"]
    variances: Float[Tensor, " p"] | None = None
    on_path: bool = False

    def arrays(self) -> dict[str, Tensor]:
        """All that it is, by name, for files and wires."""
        named = {"vectors": self.vectors, "labels": self.labels}
        if self.variances is not None:
            named["variances"] = self.variances
        return {**named, "on_path": torch.tensor(True)} if self.on_path else named

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> "Prototypes":
        """The inverse of `arrays`."""
        on_path = bool(arrays.get("on_path", False))
        return cls(arrays["vectors"], arrays["labels"], arrays.get("variances"), on_path)

    @classmethod
    def concat(cls, parts: Sequence["Prototypes"]) -> "Prototypes":
        """All prototypes of several clients as one set; variances survive only if everybody gave them."""
        known = [part.variances for part in parts if part.variances is not None]
        return cls(
            torch.cat([part.vectors for part in parts]),
            torch.cat([part.labels for part in parts]),
            torch.cat(known) if len(known) == len(parts) else None,
        )


@dataclass(frozen=True, slots=True)
class Release:
    """What may be sent, with what sending it costs. Made by mechanisms, and by nobody else.

    The release itself stays at home: only `charged_to` and `paid_with` hand over the part that may leave.
    """

    prototypes: Prototypes
    receipt: Receipt
    diagnostics: Mapping[str, float] = field(default_factory=dict)  # private: computed from clean prototypes
    memory: Memory = field(default_factory=dict)  # what the mechanism wants back at its next release

    def charged_to(self, ledger: Ledger | LedgerFile, *, round: int) -> Prototypes:
        """Pay first, then hand over; a release that would pass the budget is never handed over."""
        ledger.charge(self.receipt, round=round)
        return self.prototypes

    def paid_with(self, receipt: Receipt) -> Prototypes:
        """Hand over what a ledger was charged for before the data were looked at, and nothing dearer."""
        if receipt != self.receipt:
            raise VpdrError(
                f"the release costs {self.receipt.events}, but {receipt.events} was paid for: it is not sent"
            )
        return self.prototypes


@dataclass(frozen=True, slots=True)
class Step:
    """One mini-batch as a framework's loss sees it: after the encoder, after any soft clipping."""

    features: Float[Tensor, "b d"]
    logits: Float[Tensor, "b c"]
    labels: Int[Tensor, " b"]
    public: Float[Tensor, "b d"]  # the same samples on the frozen path, adapters bypassed
    weights: Float[Tensor, " b"]  # 1, or 0 for rows that only fill a batch up
