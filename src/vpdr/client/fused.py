"""The client's own model where it has learnt, what is shared where it has not. Private: it stays there."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.client.client import Client
from vpdr.client.parts import Samples
from vpdr.client.shared_guess import shared_guess

_HUGE = 1e100  # what an infinite score counts as


@dataclass(frozen=True, slots=True)
class Evidence:
    """Scores of each class by the client's own model: of the samples in question, and of those it learnt."""

    asked: Float[Tensor, "m c"]
    learnt: Float[Tensor, "n c"]


def fused(client: Client, test: Samples, own: Evidence) -> Int[Tensor, " m"]:
    """The class of each sample by both together, without knowing whether the client has it.

    What is shared gives every class a probability. What falls on the classes that the client has is divided
    anew among them by its own model alone. Where nothing is shared the same rule reads the client's own
    means: what it could do alone.
    """
    guess = shared_guess(client, test)
    if guess is None:
        return own.asked.argmax(dim=1)
    labels = client.shard.train.labels
    if not len(labels):
        return guess.argmax(dim=1)
    told = likelihood(_finite(own.asked), _finite(own.learnt))
    return combined(guess, told, held(labels, client.habits.classes)).argmax(dim=1)


def held(labels: Int[Tensor, " n"], classes: int) -> Float[Tensor, " c"]:
    """How far the client has each class: its samples over an equal share of all its samples, at most 1.

    A model that saw one class ten times as often as another does not know the other one, so a class counts
    as held by its share and not as soon as there is a sample of it.
    """
    counts = torch.bincount(labels, minlength=classes).double()
    return (counts * classes / counts.sum()).clamp(max=1.0)


def likelihood(asked: Float[Tensor, "m c"], learnt: Float[Tensor, "n c"]) -> Float[Tensor, "m c"]:
    """Logarithms of the model's probabilities over those that it gives the training samples on average.

    The latter and not the classes' frequencies: a head that is hardly trained does not know these yet.
    """
    rows, classes = learnt.shape
    usual = (learnt.softmax(dim=1).sum(dim=0) + 1) / (rows + classes)
    return asked.log_softmax(dim=1) - usual.log()


def combined(
    guess: Float[Tensor, "m c"], told: Float[Tensor, "m c"], share: Float[Tensor, " c"]
) -> Float[Tensor, "m c"]:
    """Probabilities: the shared guess, of which the held share is divided anew by the model's likelihood.

    Where a client has all classes in equal numbers what is shared therefore decides nothing.
    """
    divided = (told + share.log()).softmax(dim=1)
    return (1 - share) * guess + (share * guess).sum(dim=1, keepdim=True) * divided


def _finite(scores: Float[Tensor, "m c"]) -> Float[Tensor, "m c"]:
    """Numbers that probabilities can be made of, also where training blew the model up."""
    return scores.double().nan_to_num(nan=0.0, posinf=_HUGE, neginf=-_HUGE)
