"""One line of a ledger, and its form in files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vpdr.errors import InvalidInput
from vpdr.privacy.events import pack, unpack
from vpdr.privacy.terms import Adjacency, Basis, Counts, EncoderKind, Noise, Purpose, Receipt, Terms, member


@dataclass(frozen=True, slots=True)
class Entry:
    """One release, or the training of one round: when it was and what it cost."""

    round: int
    receipt: Receipt

    @property
    def released(self) -> bool:
        """Whether something left the client for it."""
        return self.receipt.purpose is Purpose.RELEASE


def pack_entry(entry: Entry) -> dict[str, Any]:
    """One release as plain data."""
    terms = entry.receipt.terms
    names = ("adjacency", "encoder", "counts", "basis", "noise")
    return {
        "round": int(entry.round),
        "purpose": str(entry.receipt.purpose),
        "events": [pack(event) for event in entry.receipt.events],
        "terms": {name: str(getattr(terms, name)) for name in names},
    }


def unpack_entry(data: Mapping[str, Any]) -> Entry:
    """The inverse of `pack_entry`."""
    terms = data["terms"]
    kept = Terms(
        adjacency=Adjacency(terms["adjacency"]),
        encoder=EncoderKind(terms["encoder"]),
        counts=Counts(terms["counts"]),
        basis=Basis(terms["basis"]),
        noise=Noise(terms["noise"]),
    )
    if not isinstance(data["events"], list) or type(data["round"]) is not int:
        raise InvalidInput(
            f"expected a round and a list of events, got {data['round']!r} and {data['events']!r}"
        )
    purpose = member(Purpose, data.get("purpose", Purpose.RELEASE))  # older ledgers know releases only
    events = tuple(unpack(event) for event in data["events"])
    return Entry(data["round"], Receipt(events=events, terms=kept, purpose=purpose))
