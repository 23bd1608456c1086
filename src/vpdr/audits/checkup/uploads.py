"""What leaves a client: listed arrays of known kinds, and for strict releases always the same shape."""

import torch

from vpdr.audits.checkup.base import must
from vpdr.audits.pairs import pairs_for
from vpdr.audits.requests import Wish, from_wish
from vpdr.mechanisms import MECHANISMS, SystemNoise
from vpdr.privacy import Adjacency
from vpdr.types import Prototypes

KINDS = {"vectors": torch.float32, "labels": torch.int64, "variances": torch.float32, "on_path": torch.bool}
SMALL = ("benchmark.samples=16", "model.dim=8")


def uploads() -> str:
    """Every mechanism's upload; under hidden counts neighbours send the same names and shapes."""
    checked = 0
    for kind in MECHANISMS:
        for adjacency in Adjacency:
            subject = from_wish(Wish(mechanism=kind, rounds=2, adjacency=adjacency, settings=SMALL)).subject
            hidden = subject.client.promise.summarise.hides_counts(adjacency)
            for pair in pairs_for(subject):
                made = [subject.with_data(each, SystemNoise()).release(1) for each in pair.worlds]
                shapes = [_checked(f"{kind} {adjacency}", each) for each in made]
                alike = not hidden or (shapes[0] == shapes[1])
                must(alike, f"{kind} {adjacency}: {pair.name} changes the shape of the upload")
                checked += 2
    return f"{checked} uploads hold {', '.join(KINDS)} and nothing else; hidden counts change no shape"


def _checked(who: str, upload: Prototypes | None) -> dict[str, tuple[int, ...]]:
    must(type(upload) is Prototypes, f"{who}: sends {type(upload).__name__}")
    arrays = {} if upload is None else upload.arrays()
    for name, array in arrays.items():
        must(name in KINDS, f"{who}: sends {name}, which is not on the list")
        must(array.dtype is KINDS[name], f"{who}: sends {name} as {array.dtype}")
        must(bool(array.isfinite().all()), f"{who}: {name} are not finite")
        must(array.grad_fn is None, f"{who}: {name} carry a graph")
    return {name: tuple(array.shape) for name, array in arrays.items()}
