"""Encoder independence, bit for bit: what is released must not know how anybody trained."""

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.audits.checkup.base import must
from vpdr.audits.pairs import mislabelled
from vpdr.audits.requests import Wish, from_wish
from vpdr.audits.silence import Silence
from vpdr.audits.subject import Subject
from vpdr.audits.worlds import learns
from vpdr.client import Samples
from vpdr.frameworks import FRAMEWORKS

SMALL = (
    "benchmark.samples=16",
    "model.dim=8",
    "framework.fedtgp.epochs=2",
    "framework.mpft.epochs=2",
    "framework.mpft.hidden=8",
)


def encoder_independence() -> str:
    """Public features stay the same in training and when another record changes; personal ones do not."""
    tried = []
    for kind in FRAMEWORKS:
        if not FRAMEWORKS[kind]().uploads:
            continue
        subject = from_wish(Wish(rounds=2, settings=(*SMALL, f"framework.kind={kind}"))).subject
        pair = mislabelled(subject)
        must(not learns(subject, pair.first), f"{kind}: training changes public features")
        rows = torch.arange(1, len(pair.first.labels))
        first, second = (_after_training(subject, samples)[rows] for samples in pair.worlds)
        must(torch.equal(first, second), f"{kind}: one record changes the public features of others")
        tried.append(kind)
    personal = from_wish(Wish(rounds=2, encoder="personal", settings=SMALL)).subject
    must(learns(personal, mislabelled(personal).first), "the check is blind: personal features do not move")
    return f"public features are bit-identical under {', '.join(tried)}; personal ones change, as they must"


def _after_training(subject: Subject, samples: Samples) -> Float[Tensor, "n d"]:
    client = subject.with_data(samples, Silence())
    upload = client.release(1) or subject.nothing()
    broadcast, _ = subject.answer(1, upload, subject.framework.start(subject.now(0)))
    client.finetune(broadcast, 1)
    return client.released_features(samples)
