"""How long the parts that VPDR adds take: the same calls on the same features, timed one by one."""

import statistics
import time
from collections.abc import Callable

import torch

from vpdr.client import Client
from vpdr.engines.build import build
from vpdr.mechanisms import Occasion, Vpp
from vpdr.mechanisms.noise import SeededNoise
from vpdr.mechanisms.scores import anova_scores
from vpdr.plan import Plan
from vpdr.types import Features

REPEATS = 15


def extra_parts(plan: Plan) -> dict[str, float]:
    """Milliseconds of one client and round (median over clients): scores, selection, soft clip, teacher, KL.

    Each is the median of repeated calls on the initial encoder's features; what happens once a step is
    multiplied by the steps of a round.
    """
    torch.set_num_threads(plan.run.threads)
    clients = build(plan).clients
    found = [_of(client) for client in clients if len(client.shard.train.labels)]
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def _of(client: Client) -> dict[str, float]:
    mechanism = client.promise.mechanism
    if not isinstance(mechanism, Vpp):
        return {}
    seen = Features(client.released_features(client.shard.train), client.shard.train.labels)
    scores = anova_scores(seen)
    occasion = Occasion(client=client.id, noise=SeededNoise(client.streams.draw("timing", client=client.id)))
    return {
        "stats": _timed(lambda: anova_scores(seen)),
        "topk": _timed(lambda: mechanism.selection.choose(scores, mechanism.groups.kept, occasion)),
        **_step_parts(client, seen),
    }


def _step_parts(client: Client, seen: Features) -> dict[str, float]:
    """Soft clipping, the teacher's step, and the distillation with the teacher's judgement."""
    habits, guide, head = client.habits, client.guide, client.model.head
    batch = seen.vectors[: habits.batch]
    steps = habits.epochs * -(-len(seen.labels) // habits.batch)
    logits = head(guide.reshape(batch)).detach()
    weights = torch.ones(len(batch))
    return {
        "clip": steps * _timed(lambda: guide.reshape(batch)),
        "teacher": steps * _timed(lambda: guide.follow(head)),
        "kl": steps * _timed(lambda: guide.loss(batch, logits, weights)),
    }


def _timed(call: Callable[[], object]) -> float:
    """Milliseconds of one call: the median, after one to warm up."""
    call()
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - begin))
    return statistics.median(taken)
