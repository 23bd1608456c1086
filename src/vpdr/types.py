"""Data types that packages exchange, and the array types of all annotations.

Shapes: n samples, p prototypes, b batch, c classes, d dimensions.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol, SupportsIndex, TypeAlias, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float32, Float64, Int, Int32, Int64, Real, UInt8  # noqa: F401
from torch import Tensor

from vpdr.privacy import Charge, Ledger, LedgerFile, Receipt
from vpdr.validation import InvalidInput, VpdrError

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


class ChargeRequired(VpdrError):
    """A release was read before its charge was in a ledger."""


class Release:
    """What a mechanism computed from the data: sealed until its privacy cost is in a ledger.

    Made by mechanisms only. The receipt can be read at once. Prototypes, state and diagnostics can be read after
    `charge_to` or `open` has succeeded, and raise `ChargeRequired` before. A release shows none of them in its
    text, and it is neither copied, pickled nor compared by value. Python cannot forbid access to the memory of
    a process: this protects against mistakes, not against a programmer who means to read the values.

    Args:
        prototypes: what may be sent once the receipt is charged.
        receipt: the privacy cost, and the terms of the guarantee.
        diagnostics: computed from clean prototypes. Private, also after the charge.
        state: what the mechanism needs at the client's next release. May be private, also after the charge.
        mechanism: what a ledger file names as the mechanism.

    Guarantee: the prototypes depend on the features only through the events of the receipt, and one charge
    opens one release.

    >>> from vpdr import Budget, Igpp, Ledger, ReleaseContext
    >>> budget = Budget(1.0, 1e-5)
    >>> mechanism = Igpp.calibrated(budget, 2, clip_norm=1.0, accumulate=True)
    >>> ledger, features, labels = Ledger(client="a", budget=budget), torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> release = mechanism.release(features, labels)
    >>> release.prototypes
    Traceback (most recent call last):
    vpdr.types.ChargeRequired: this release is sealed: call charge_to(ledger, round=...) before its prototypes are read
    >>> upload = release.charge_to(ledger, round=1)
    >>> upload.vectors.shape
    torch.Size([2, 4])

    The next stage continues from the state of a release that was paid for:

    >>> release = mechanism.release(features, labels, ReleaseContext(round=2, state=release.state))
    >>> upload = release.charge_to(ledger, round=2)
    >>> int(release.state["count"]), len(ledger.entries)
    (2, 2)
    """

    __slots__ = ("_is_open", "_lock", "_read", "_receipt", "mechanism")
    _read: Callable[[], tuple[Prototypes, MechanismState, Mapping[str, float]]]

    def __init__(
        self,
        prototypes: Prototypes,
        receipt: Receipt,
        diagnostics: Mapping[str, float] | None = None,
        state: MechanismState | None = None,
        mechanism: str = "",
    ) -> None:
        contents = prototypes, state or {}, diagnostics or {}
        self._read = lambda: contents  # inside a function, so that no attribute holds a value
        self._receipt, self._is_open, self.mechanism = receipt, False, mechanism
        self._lock = threading.Lock()

    @property
    def receipt(self) -> Receipt:
        """The privacy cost, and the terms of the guarantee."""
        return self._receipt

    @property
    def prototypes(self) -> Prototypes:
        """The prototypes, which may be sent; `ChargeRequired` before the charge."""
        self._check_open("prototypes are")
        return self._read()[0]

    @property
    def state(self) -> MechanismState:
        """What the mechanism needs at the client's next release; `ChargeRequired` before the charge."""
        self._check_open("state is")
        return self._read()[1]

    @property
    def diagnostics(self) -> Mapping[str, float]:
        """What was computed from clean prototypes. Private; `ChargeRequired` before the charge."""
        self._check_open("diagnostics are")
        return self._read()[2]

    def _check_open(self, what: str) -> None:
        if not self._is_open:
            raise ChargeRequired(f"this release is sealed: call charge_to(ledger, round=...) before its {what} read")

    def charge_to(self, ledger: Ledger | LedgerFile, *, round: int) -> Prototypes:
        """Charge the ledger, then open the release.

        Args:
            ledger: the client's ledger, in memory or in a file.
            round: the round of the release.

        Returns:
            The prototypes, which may be sent.

        Raises:
            BudgetExceeded: the release would exceed the budget; it stays sealed and nothing is recorded.
            InvalidInput: the ledger counts under another adjacency, or lacks the training of the encoder.
            VpdrError: the release is already charged.
        """
        with self._lock:
            self._check_not_charged()
            return self._open(ledger.charge(self._receipt, round=round, mechanism=self.mechanism))

    def open(self, charge: Charge) -> Prototypes:
        """Open the release by a charge that was made before the data were read.

        Args:
            charge: what `charge` of the client's ledger returned for `Mechanism.receipt_for`.

        Returns:
            The prototypes, which may be sent.

        Raises:
            VpdrError: another receipt was charged, or the charge or the release is used.
        """
        with self._lock:
            self._check_not_charged()
            return self._open(charge)

    def _check_not_charged(self) -> None:
        if self._is_open:
            raise VpdrError("this release is already charged: read its prototypes, or make another release")

    def _open(self, charge: object) -> Prototypes:
        if not isinstance(charge, Charge):
            raise InvalidInput(f"expected the charge that a ledger returned, got {type(charge).__name__}")
        charge.use(self._receipt)
        self._is_open = True
        return self.prototypes

    def map_prototypes(self, function: Callable[[Prototypes], Prototypes]) -> "Release":
        """A sealed release with other prototypes: for mechanisms that are built on another one.

        Args:
            function: post-processing; it may use public numbers besides the prototypes, and keeps nothing.

        Returns:
            The release, with the same receipt, state and diagnostics.
        """
        prototypes, state, diagnostics = self._read()
        return type(self)(function(prototypes), self._receipt, diagnostics, state, self.mechanism)

    def __repr__(self) -> str:
        return f"Release({'charged' if self._is_open else 'sealed'}, receipt={self._receipt})"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise VpdrError("a release cannot be copied or pickled; pass on what charge_to returned")


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """One mini-batch as a framework's loss sees it: after the encoder, after any soft clipping."""

    features: Float[Tensor, "b d"]
    logits: Float[Tensor, "b c"]
    labels: Int[Tensor, " b"]
    frozen_features: Float[Tensor, "b d"]  # the same samples without adapters
    weights: Float[Tensor, " b"]  # 1, or 0 for padding rows
