"""What an attacker reads from the memory of rapp, which is made of released numbers alone."""

import torch

from vpdr.mechanisms.rapp.seen import Seen
from vpdr.types import Memory, Prototypes


def read(memory: Memory) -> Prototypes:
    """Sums, counts and the second moment after a release, in units of the noise that all stages left.

    An upload is a quotient of sums by noisy counts; here each number has Gaussian noise of its own. The
    moment is one number, so only the first row has it.
    """
    seen = Seen.recalled(memory)
    counts = seen.counts / seen.counted.sqrt()
    moment = torch.zeros_like(counts)
    moment[0] = seen.moment * seen.moment_weight.sqrt()
    rows = torch.cat([seen.sums / seen.weight.sqrt(), counts[:, None], moment[:, None]], dim=1)
    return Prototypes(rows, torch.arange(len(rows)))
