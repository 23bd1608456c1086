"""How far released prototypes are from the clean ones. Private: it is computed from clean prototypes."""

from jaxtyping import Float, Int
from torch import Tensor

from vpdr.prototypes import ClassMeans
from vpdr.types import Features, Prototypes


def relative_error(told: Prototypes, features: Features) -> float:
    """Squared error of the prototypes over the energy between classes; 1 is what a constant would score.

    Measured against the means of unclipped features, over the classes that the client holds. NaN where
    there is more than one prototype a class, or no more than one class.
    """
    clean = ClassMeans()(features.vectors, features.labels)
    shared = [label for label in clean.labels.tolist() if (told.labels == label).sum() == 1]
    if len(shared) < 2:
        return float("nan")
    target = _rows(clean.vectors, clean.labels, shared)
    error = (_rows(told.vectors.double(), told.labels, shared) - target).square().sum(1).mean()
    return float(error / (target - target.mean(0)).square().sum(1).mean())


def _rows(
    vectors: Float[Tensor, "p d"], labels: Int[Tensor, " p"], wanted: list[int]
) -> Float[Tensor, "k d"]:
    order = {label: row for row, label in enumerate(labels.tolist())}
    return vectors[[order[label] for label in wanted]].double()
