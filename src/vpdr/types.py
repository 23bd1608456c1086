"""Data types that packages exchange, and the array types of all annotations.

Shapes: n samples, p prototypes, b batch, c classes, d dimensions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float64, Int, Int32, Int64, Real, UInt8  # noqa: F401
from torch import Tensor

from vpdr.privacy import Ledger, LedgerFile, Receipt
from vpdr.validation import VpdrError

Losses: TypeAlias = Mapping[str, Float[Tensor, ""]]
MechanismState: TypeAlias = Mapping[str, Tensor]
ProgressCallback: TypeAlias = Callable[[str, int, int], None]  # name of the task, steps done, steps in total


def no_progress(name: str, done: int, total: int) -> None:
    """The progress callback that does nothing."""


@runtime_checkable
class Inputs(Protocol):
    """The input of a trainable backbone: images or tokens of some samples, in memory or on disk. Private."""

    def __len__(self) -> int: ...

    def take(self, rows: Int[Tensor, " m"]) -> "Inputs":
        """The same source with these samples only, in this order; nothing is read yet."""

    def batch(self, rows: Int[Tensor, " b"], rng: torch.Generator | None = None) -> Tensor:
        """These samples as one tensor; augmented where a generator is given."""


@dataclass(frozen=True, slots=True, repr=False)  # private values never get into a log
class Features:
    """A client's encoded samples (Z_m). Private: never leaves the client."""

    vectors: Float[Tensor, "n d"]
    labels: Int[Tensor, " n"]


@dataclass(frozen=True, slots=True, repr=False)  # as for features
class Summary:
    """Prototypes before noise, with the number of samples of each. Private."""

    vectors: Float[Tensor, "p d"]
    labels: Int[Tensor, " p"]
    sizes: Int[Tensor, " p"]


@dataclass(frozen=True, slots=True)
class Prototypes:
    """Labelled points in feature space that may be sent to anyone.

    Args:
        vectors: the prototypes.
        labels: the class of each.
        variances: the noise per coordinate, where the summariser publishes it. It reveals what the noise
            depends on, so it is None wherever that is a count which the server must not know.
        in_broadcast_space: whether the features came through a feature map that was broadcast before. It
            reveals which broadcast a client has received, which the sender of the broadcast knows.

    Guarantee: none of its own; those that a `Release` returns have been paid for.

    >>> prototypes = Prototypes(torch.zeros(2, 3), torch.tensor([0, 1]))
    >>> sorted(prototypes.to_arrays())
    ['labels', 'vectors']
    """

    vectors: Float[Tensor, "p d"]
    labels: Int[Tensor, " p"]
    variances: Float[Tensor, " p"] | None = None
    in_broadcast_space: bool = False

    def to_arrays(self) -> dict[str, Tensor]:
        """All fields by name, for files and messages."""
        arrays = {"vectors": self.vectors, "labels": self.labels}
        if self.variances is not None:
            arrays["variances"] = self.variances
        return {**arrays, "on_path": torch.tensor(True)} if self.in_broadcast_space else arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> "Prototypes":
        """The inverse of `to_arrays`."""
        in_broadcast_space = bool(arrays.get("on_path", False))
        return cls(arrays["vectors"], arrays["labels"], arrays.get("variances"), in_broadcast_space)

    @classmethod
    def concat(cls, parts: Sequence["Prototypes"]) -> "Prototypes":
        """The prototypes of several clients as one set; with variances only if every part has them."""
        variances = [part.variances for part in parts if part.variances is not None]
        return cls(
            torch.cat([part.vectors for part in parts]),
            torch.cat([part.labels for part in parts]),
            torch.cat(variances) if len(variances) == len(parts) else None,
        )


@dataclass(frozen=True, slots=True)
class Release:
    """What a mechanism computed from the data, with its privacy cost. Made by mechanisms only.

    The release itself stays on the client: only `charge_to` and `if_charged` return the part that may leave.

    Args:
        prototypes: what may be sent once the receipt is charged.
        receipt: the privacy cost, and the terms of the guarantee.
        diagnostics: computed from clean prototypes. Private.
        state: what the mechanism needs at the client's next release. May be private.

    Guarantee: the prototypes depend on the features only through the events of the receipt.

    >>> from vpdr import Budget, Igpp, Ledger
    >>> mechanism = Igpp.calibrated(Budget(1.0, 1e-5), 1, clip_norm=1.0)
    >>> release = mechanism.release(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> upload = release.charge_to(Ledger(client="a", budget=Budget(1.0, 1e-5)), round=1)
    >>> upload.vectors.shape
    torch.Size([2, 4])
    """

    prototypes: Prototypes
    receipt: Receipt
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    state: MechanismState = field(default_factory=dict)

    def charge_to(self, ledger: Ledger | LedgerFile, *, round: int) -> Prototypes:
        """Charge the ledger, then return the prototypes.

        Args:
            ledger: the client's ledger, in memory or in a file.
            round: the round of the release.

        Returns:
            The prototypes, which may be sent.

        Raises:
            BudgetExceeded: the release would exceed the budget; nothing is returned and nothing recorded.
            InvalidInput: the ledger counts under another adjacency, or lacks the training of the encoder.
        """
        ledger.charge(self.receipt, round=round)
        return self.prototypes

    def if_charged(self, receipt: Receipt) -> Prototypes:
        """The prototypes, for a client that charged the ledger before it used the data.

        Args:
            receipt: what the ledger was charged, from `Mechanism.receipt_for`.

        Returns:
            The prototypes, which may be sent.

        Raises:
            VpdrError: the release has another receipt.
        """
        if receipt != self.receipt:
            raise VpdrError(
                f"the release costs {self.receipt.events}, but {receipt.events} was paid for: it is not sent"
            )
        return self.prototypes


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """One mini-batch as a framework's loss sees it: after the encoder, after any soft clipping."""

    features: Float[Tensor, "b d"]
    logits: Float[Tensor, "b c"]
    labels: Int[Tensor, " b"]
    frozen_features: Float[Tensor, "b d"]  # the same samples without adapters
    weights: Float[Tensor, " b"]  # 1, or 0 for padding rows
