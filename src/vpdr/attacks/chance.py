"""What an attack without any information would score: the same scores under permuted labels."""

import torch
from jaxtyping import Bool
from torch import Tensor

PERMUTATIONS = 31


def labellings(
    members: int, others: int, rng: torch.Generator, count: int = PERMUTATIONS
) -> Bool[Tensor, "n k"]:
    """Who is a member: the truth (members first) in the first column, then `count` random choices.

    The same choices serve every round, so that the mean over rounds can be judged too: rounds share their
    samples, and their luck with them.
    """
    size = members + others
    draws = torch.rand(size, count, generator=rng, dtype=torch.float64)
    chosen = draws <= draws.kthvalue(members, dim=0).values
    truth = torch.arange(size)[:, None] < members
    return torch.cat([truth, chosen], dim=1)
