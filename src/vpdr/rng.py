"""Named random streams: one seed, and no two purposes ever share a draw."""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch

_STATE_WORDS = 624  # the state of a Mersenne twister
_FRESH_FLAGS = np.array([1, 1, 0, 0], dtype=np.int32)  # as after seeding: no draw yet, the next one twists
_STATE_OFFSET, _FLAG_BYTES = 24, slice(8, 24)  # where torch stores the state, and the flags before it


@dataclass(frozen=True, slots=True)
class Streams:
    """All reproducible randomness of one run, independent of the order of clients and of parallelism.

    Whoever knows the seed knows every draw. Privacy noise that must stay secret comes from the operating
    system (`vpdr.mechanisms.SystemNoise`).

    >>> first, second = (torch.rand(1, generator=Streams(0).generator("init")) for _ in range(2))
    >>> bool(first == second)
    True
    """

    seed: int  # of the run
    branch: str = ""  # the name of a fork; empty for the run's own streams

    def generator(self, purpose: str, *, client: str | int = "", round: int = 0) -> torch.Generator:
        """A fresh generator for one purpose, client and round: the same arguments give the same draws."""
        key = f"{self.seed}/{self.branch}/{purpose}/{client}/{round}".encode()
        # the whole state comes from the key: torch's own seeding uses only 32 bits of it
        entropy = int.from_bytes(hashlib.sha256(key).digest(), "big")
        words = np.random.SeedSequence(entropy).generate_state(_STATE_WORDS, np.uint32)
        rng = torch.Generator()
        state = rng.get_state().numpy().copy()
        state[_FLAG_BYTES] = _FRESH_FLAGS.view(np.uint8)
        state[_STATE_OFFSET : _STATE_OFFSET + 8 * _STATE_WORDS] = words.astype(np.uint64).view(np.uint8)
        rng.set_state(torch.from_numpy(state))
        return rng

    def key(self, purpose: str) -> bytes:
        """32 bytes for one purpose, for a keyed hash; as public as the seed."""
        return hashlib.sha256(f"{self.seed}/{self.branch}/{purpose}".encode()).digest()

    def fork(self, branch: str) -> "Streams":
        """Independent streams: whoever holds them cannot repeat a draw of the original streams."""
        key = hashlib.sha256(f"{self.seed}/{self.branch}/{branch}".encode()).hexdigest()
        return Streams(int(key, 16), branch)
