"""The noise that mechanisms really add, against what their receipts state."""

import dataclasses
import math

import torch

from vpdr.audits.checkup.base import must
from vpdr.audits.evidence import seen
from vpdr.audits.fixed import Fixed
from vpdr.audits.pairs import antipodal
from vpdr.audits.requests import Wish, from_wish
from vpdr.audits.silence import Silence
from vpdr.audits.subject import Subject
from vpdr.mechanisms import MECHANISMS, SystemNoise
from vpdr.privacy.events import Event, gaussian_precision
from vpdr.prototypes import ClassMeans

RELEASES = 100
_TOLERANCE = 5.0  # standard errors
_SLACK = 0.1  # of one pair: noise that is shaped over coordinates is measured as if it were round


def noise_levels() -> str:
    """Every private mechanism: no weaker than stated, and of the very scale where it tells one."""
    told = []
    for kind in MECHANISMS:
        subject = from_wish(Wish(mechanism=kind, rounds=RELEASES)).subject
        precision = gaussian_precision(_first_events(subject))
        if not precision:
            told.append(f"{kind} states no noise")
            continue
        share = measured_mu(subject) / math.sqrt(precision)
        must(share <= 1 + _SLACK, f"{kind}: one sample shows {share:.3f} times as much as is stated")
        told.append(f"{kind} {_scale(kind, subject)}a sample shows {share:.3f} of what is stated")
    return "; ".join(told)


def _first_events(subject: Subject) -> tuple[Event, ...]:
    pair = antipodal(subject)
    client = subject.with_data(pair.first, SystemNoise())
    client.release(1)
    return client.ledger.events


def measured_mu(subject: Subject) -> float:
    """How far an antipodal pair moves one release, in measured standard deviations of its noise."""
    pair, once = antipodal(subject), dataclasses.replace(subject, releases=1)
    first, second = (Fixed.of(once, samples) for samples in pair.worlds)
    quiet, other = first.play(Silence()).sent[0], second.play(Silence()).sent[0]
    draws = [first.play(SystemNoise()).sent[0] for _ in range(RELEASES)]
    loud = torch.stack([seen(upload, subject.radius) for upload in draws])
    here = seen(quiet, subject.radius)
    variances = (loud - here).square().mean(dim=(0, 2))
    moved = (seen(other, subject.radius) - here).square().sum(1)
    return math.sqrt(float((moved / variances.clamp(min=1e-300)).sum()))


def _scale(kind: str, subject: Subject) -> str:
    """The chi-square of what was added to class means; other rules work on it before it is sent."""
    if not isinstance(subject.client.promise.summarise, ClassMeans):
        return ""
    pair = antipodal(subject)
    client, silent = subject.with_data(pair.first, SystemNoise()), subject.with_data(pair.first, Silence())
    quiet = silent.release(1)
    energy, numbers = 0.0, 0
    for t in range(1, RELEASES + 1):
        upload = client.release(t)
        meant = _meant_variance(client.diagnosis)
        if upload is None or quiet is None or meant is None:
            return ""
        energy += float((upload.vectors - quiet.vectors).double().square().sum()) / meant
        numbers += upload.vectors.numel()
    ratio = energy / numbers
    error = math.sqrt(2 / numbers)
    must(abs(ratio - 1) < _TOLERANCE * 2 * error, f"{kind}: noise energy is {ratio:.3f} of what is stated")
    return f"noise energy {ratio:.3f} of what is stated, "


def _meant_variance(diagnosis: dict[str, float]) -> float | None:
    if "sigma_focus" in diagnosis:
        share = diagnosis["chance"]
        return share * diagnosis["sigma_focus"] ** 2 + (1 - share) * diagnosis["sigma_rest"] ** 2
    sigma = diagnosis.get("sigma")
    return sigma**2 if sigma else None
