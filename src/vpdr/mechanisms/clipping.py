"""Ways to bound what one sample can do."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vpdr.errors import InvalidInput

SMALLEST, LARGEST = 1e-12, 1e12


def clip(vectors: Float[Tensor, "n d"], bound: float) -> Float[Tensor, "n d"]:
    """Scale each row down to l2 norm `bound`; rows already inside are left as they are (Eq. 4)."""
    norms: Tensor = vectors.norm(dim=1, keepdim=True)
    return vectors * (bound / norms.clamp(min=bound))


def clip_groups(
    vectors: Float[Tensor, "n d"], focus: Bool[Tensor, " d"], bounds: tuple[float, float]
) -> Float[Tensor, "n d"]:
    """Clip the focus coordinates and the rest on their own (Eq. 11); a zero block stays zero."""
    first, second = bounds
    focus_norm = vectors[:, focus].norm(dim=1, keepdim=True).clamp(min=first)
    rest_norm = vectors[:, ~focus].norm(dim=1, keepdim=True).clamp(min=second)
    return torch.where(focus, first / focus_norm, second / rest_norm).mul_(vectors)


def check_clip_norm(clip_norm: float) -> None:
    """A clip norm is a length at which noise and its square are still numbers in single precision.

    A server may choose it, so it must not be able to provoke an overflow that depends on the data.
    """
    if not SMALLEST <= clip_norm <= LARGEST:
        raise InvalidInput(
            f"clip_norm must be a positive number between {SMALLEST:g} and {LARGEST:g}, got {clip_norm:g}; "
            "use about the norm of a feature"
        )
