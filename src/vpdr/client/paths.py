"""The path that a server may broadcast, from public features to those that are released."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.client.usual import usual
from vpdr.frameworks import Framework, Path
from vpdr.privacy import EncoderKind


def path_heard(encoder: EncoderKind, framework: Framework[Any], heard: Any) -> Path | None:
    """The path of the last broadcast, if that is what the client releases from and there is one."""
    if encoder is not EncoderKind.TRANSCRIPT or heard is None:
        return None
    return framework.path(heard)


@torch.no_grad()
def through(path: Path, public: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Each sample's public feature on the path.

    Guarantee: a function of that one feature and of the path, to the last bit. Samples go one by one: how a
    row of a product is rounded may depend on its place among the others, and a hostile path can make a
    feature of nothing but rounding. Whatever was broadcast, the outcome is a usual number, so that no
    failure of a release can depend on a sample.
    """
    shown, alone = torch.empty_like(public), public.new_empty(1, public.shape[1])
    for row, feature in enumerate(public):
        alone[0] = feature
        shown[row] = path(alone)[0]
    return usual(shown)
