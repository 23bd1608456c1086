"""Encoder independence, bit for bit: what is released must not know how anybody trained."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vpdr.audits.checkup.base import must
from vpdr.audits.pairs import mislabelled
from vpdr.audits.requests import Wish, from_wish
from vpdr.audits.silence import Silence
from vpdr.audits.subject import Subject
from vpdr.audits.worlds import learns
from vpdr.client import Client, Samples
from vpdr.frameworks import FRAMEWORKS

SMALL = (
    "benchmark.samples=16",
    "model.dim=8",
    "framework.fedtgp.epochs=2",
    "framework.mpft.epochs=2",
    "framework.mpft.hidden=8",
)


def encoder_independence() -> str:
    """Public features stay the same in training and when another record changes; personal ones do not.

    Features on a broadcast path may follow the broadcast, and nothing else.
    """
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
    told = _transcripts()
    personal = from_wish(Wish(rounds=2, encoder="personal", settings=SMALL)).subject
    must(learns(personal, mislabelled(personal).first), "the check is blind: personal features do not move")
    return (
        f"public features are bit-identical under {', '.join(tried)}, those on a broadcast path given the "
        f"broadcast under {', '.join(told)}; personal ones change, as they must"
    )


def _transcripts() -> list[str]:
    """The frameworks with a path: given one broadcast, no training and no other record is felt on it."""
    able = [kind for kind, make in FRAMEWORKS.items() if make().transcript() is not None]
    for kind in able:
        asked = Wish(rounds=2, encoder="transcript", settings=(*SMALL, f"framework.kind={kind}"))
        subject = from_wish(asked).subject
        pair, rows = mislabelled(subject), slice(1, None)
        broadcast = _broadcast(subject, subject.with_data(pair.first, Silence()))
        deaf = subject.with_data(pair.first, Silence())
        deaf.heard = broadcast
        expected = deaf.released_features(pair.first)
        for samples in pair.worlds:
            shown = _after_training(subject, samples, broadcast)
            must(torch.equal(shown[rows], expected[rows]), f"{kind}: more than the broadcast is felt")
        must(not torch.equal(expected, pair.first.public), f"the check is blind: {kind} shows no path")
    return able


def _broadcast(subject: Subject, client: Client) -> Any:
    upload = client.release(1) or subject.nothing()
    return subject.answer(1, upload, subject.framework.start(subject.now(0)))[0]


def _after_training(subject: Subject, samples: Samples, broadcast: Any = None) -> Float[Tensor, "n d"]:
    """What is released after a round, by default one in which the client has been alone."""
    client = subject.with_data(samples, Silence())
    alone = _broadcast(subject, client)
    client.finetune(alone if broadcast is None else broadcast, 1)
    return client.released_features(samples)
