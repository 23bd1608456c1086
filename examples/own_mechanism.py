"""Your own mechanism: IGPP that releases only the coordinates of a public random subset.

Run it as a script, or compare it: vpdr run paper --plugin own_mechanism.py --methods igpp,subset
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

import vpdr
from vpdr import METHODS
from vpdr.mechanisms import MECHANISMS, Igpp, MechanismConfig, MechanismTraits, ReleaseContext
from vpdr.privacy import Adjacency, Receipt
from vpdr.types import Prototypes, Release
from vpdr.validation import coerce


@dataclass(frozen=True, kw_only=True, slots=True)
class SubsetIgpp:
    """IGPP on `width` public coordinates, zero elsewhere.

    Guarantee: dropping coordinates before IGPP is a fixed map of one sample that never lengthens it, so a
    release is the Gaussian event that IGPP's is.
    """

    traits: ClassVar[MechanismTraits] = MechanismTraits(is_exact=True)

    igpp: Igpp
    coordinates: tuple[int, ...]

    @classmethod
    def from_config(cls, config: MechanismConfig) -> "SubsetIgpp":
        """Read `mechanism.subset.width`; the coordinates come from a public stream."""
        width = min(coerce("width", config.options.get("width", 8), int), config.dim)
        coordinates = torch.randperm(config.dim, generator=config.rng)[:width].tolist()
        return cls(igpp=Igpp.from_config(config), coordinates=tuple(coordinates))

    @property
    def adjacency(self) -> Adjacency:
        """Which datasets count as neighbours."""
        return self.igpp.adjacency

    def receipt_for(self, context: ReleaseContext = ReleaseContext()) -> Receipt:
        """What a release costs, known before the data are read."""
        return self.igpp.receipt_for(context)

    def release(self, vectors, labels, context: ReleaseContext = ReleaseContext()) -> Release:
        """Zero the other coordinates, then IGPP; its noise outside of the subset is dropped."""
        mask = torch.zeros(vectors.shape[1], dtype=vectors.dtype)
        mask[list(self.coordinates)] = 1
        release = self.igpp.release(vectors * mask, labels, context)  # sealed, as the one that is returned
        return release.map_prototypes(lambda each: Prototypes(each.vectors * mask, each.labels))


MECHANISMS.register("subset", SubsetIgpp)
METHODS.register("subset", {"mechanism": {"kind": "subset", "subset": {"width": 16}}})  # a name for --methods

if __name__ == "__main__":
    config = vpdr.load_config(
        "paper",
        "mechanism.kind=subset",
        "mechanism.subset.width=12",
        "benchmark.kind=synthetic",
        "benchmark.samples=100",
        "model.dim=32",
        "run.rounds=3",
    )
    record = vpdr.run(config)
    print(f"accuracy {record.final['own']['head'].average:.3f}: {record.privacy.sentence}")
