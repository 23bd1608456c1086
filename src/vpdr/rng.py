"""Named random streams: one seed, and no two purposes ever share a draw."""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch

_WORDS = 624  # the state of a Mersenne twister
_SEEDED = np.array([1, 1, 0, 0], dtype=np.int32)  # as after seeding: nothing drawn, the next draw stirs
_HEAD, _FLAGS = 24, slice(8, 24)  # where torch keeps the state, and what stands before it


@dataclass(frozen=True, slots=True)
class Streams:
    """All randomness of one run. Order of clients, engine and parallelism cannot change a draw.

    These streams are for science: whoever knows the seed knows every draw. Privacy noise that must
    stay secret comes from the operating system (`vpdr.mechanisms.noise.SystemNoise`).
    """

    seed: int
    branch: str = ""

    def draw(self, purpose: str, *, client: str | int = "", t: int = 0) -> torch.Generator:
        """A fresh generator for one purpose, client and round, the same in every engine."""
        return _generator(f"{self.seed}/{self.branch}/{purpose}/{client}/{t}".encode())

    def apart(self, branch: str) -> "Streams":
        """Streams of their own: nobody who holds them can repeat a draw of the others by name."""
        key = hashlib.sha256(f"{self.seed}/{self.branch}/{branch}".encode()).hexdigest()
        return Streams(int(key, 16), branch)


def _generator(key: bytes) -> torch.Generator:
    """A generator whose whole state comes from the key; torch's own seeding keeps only 32 bits of it."""
    entropy = int.from_bytes(hashlib.sha256(key).digest(), "big")
    words = np.random.SeedSequence(entropy).generate_state(_WORDS, np.uint32)
    rng = torch.Generator()
    state = rng.get_state().numpy().copy()
    state[_FLAGS] = _SEEDED.view(np.uint8)
    state[_HEAD : _HEAD + 8 * _WORDS] = words.astype(np.uint64).view(np.uint8)
    rng.set_state(torch.from_numpy(state))
    return rng
