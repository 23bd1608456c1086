"""A client's encoder at work: on one training batch, or on all samples at once."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.client.parts import Samples
from vpdr.encoder import PersonalEncoder
from vpdr.errors import InvalidInput
from vpdr.types import Inputs

AT_ONCE = 64  # samples through a backbone when nothing is trained


class Encoding:
    """It feeds the encoder what it wants, and remembers what it made until the encoder learns.

    Between two rounds the same samples are encoded for the release, for the loss and for every measure:
    through a whole backbone that is worth doing once.
    """

    def __init__(self, encoder: PersonalEncoder) -> None:
        self.encoder = encoder
        self._known: dict[int, tuple[Samples, Float[Tensor, "n d"]]] = {}
        self._keeps = encoder.wants_inputs

    def batch(
        self, samples: Samples, rows: Int[Tensor, " b"], rng: torch.Generator | None = None
    ) -> Float[Tensor, "b d"]:
        """These samples as the encoder sees them now; with a stream they are augmented first."""
        inputs = _inputs(samples).batch(rows, rng) if self.encoder.wants_inputs else None
        features: Tensor = self.encoder(samples.public[rows], inputs)
        return features

    @torch.no_grad()
    def all(self, samples: Samples) -> Float[Tensor, "n d"]:
        """All samples as they are, none augmented."""
        if id(samples) in self._known:
            return self._known[id(samples)][1]
        features = self._encoded(samples)
        if self._keeps:
            self._known[id(samples)] = (samples, features)
        return features

    def _encoded(self, samples: Samples) -> Float[Tensor, "n d"]:
        if not self.encoder.wants_inputs:
            features: Tensor = self.encoder(samples.public)
            return features
        if not len(samples.labels):
            return samples.public
        parts = [self.batch(samples, rows) for rows in torch.arange(len(samples.labels)).split(AT_ONCE)]
        return torch.cat(parts)

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Inside, the cheap encoder remembers as well; many clients' features are too much to keep longer."""
        self._keeps = True
        try:
            yield
        finally:
            self._keeps = self.encoder.wants_inputs
            if not self._keeps:
                self.forget()

    def forget(self) -> None:
        """The encoder has changed: what it made is no longer what it would make."""
        self._known.clear()


def _inputs(samples: Samples) -> Inputs:
    if samples.inputs is None:
        raise InvalidInput(
            "this encoder runs on the samples themselves, got their public features only; "
            "give Samples with inputs"
        )
    return samples.inputs
