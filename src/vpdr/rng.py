"""Named random streams: one seed, and no two purposes ever share a draw."""

import hashlib
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Streams:
    """All randomness of one run. Order of clients, engine and parallelism cannot change a draw.

    These streams are for science: whoever knows the seed knows every draw. Privacy noise that must
    stay secret comes from the operating system (`vpdr.mechanisms.noise.SystemNoise`).
    """

    seed: int

    def draw(self, purpose: str, *, client: str | int = "", t: int = 0) -> torch.Generator:
        """A fresh generator for one purpose, client and round, the same in every engine."""
        key = f"{self.seed}/{purpose}/{client}/{t}".encode()
        digest = hashlib.blake2b(key, digest_size=8).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
