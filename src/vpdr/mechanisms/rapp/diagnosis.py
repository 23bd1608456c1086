"""How good a release is. Private: it is computed from clean prototypes."""

import math

from jaxtyping import Float
from torch import Tensor

from vpdr.mechanisms.rapp.seen import Seen
from vpdr.prototypes.means import ClassMeans
from vpdr.types import Features


def diagnosed(
    features: Features, seen: Seen, counts: Float[Tensor, " p"], per_class: int
) -> dict[str, float]:
    """The noise of a typical row, beside the length of a clean prototype, and the last radius."""
    spread = seen.variances(counts).sqrt()
    sigma = float(spread.median())
    clean = ClassMeans()(features.vectors, features.labels)
    noise = spread.reshape(-1, per_class).mean(dim=1)[clean.labels] * math.sqrt(seen.sums.shape[1])
    lengths = clean.vectors.norm(dim=1)
    ratio = noise[lengths > 0] / lengths[lengths > 0]
    return {
        "sigma": sigma,
        "noise_to_signal": float(ratio.median()) if len(ratio) else 0.0,
        "energy_ratio": 1.0,  # all coordinates of a row have the same noise
        "radius": math.sqrt(float(seen.moment)),
        "stage": float(seen.stage),
    }
