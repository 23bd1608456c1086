"""Membership inference: was a sample among those behind the uploaded prototype?

Three adversaries score the same uploads. `distance` is the paper's: members are nearer to their prototype.
Two stronger ones are optional: `likelihood` is the Gaussian likelihood ratio of one round, and `accumulated`
adds the ratios of all rounds, which is what an adversary with every upload can do. The kind is `mia`.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from vpdr.attacks.base import AttackContext, adversary_features
from vpdr.attacks.candidates import Candidates, sample_candidates
from vpdr.attacks.likelihood import CandidateFeatures, CovarianceModel, fit_covariance, membership_log_ratios
from vpdr.attacks.membership_metrics import MembershipScores, membership_result
from vpdr.client import Client
from vpdr.federation import RoundUploads
from vpdr.types import Prototypes


@dataclass(slots=True)
class _TargetClient:
    """One attacked client: its candidates, and their scores so far."""

    candidates: Candidates
    covariance: CovarianceModel | None  # only for likelihood ratios
    rounds: list[int] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)  # of each round: [a s], by adversary
    has_prototype: list[Tensor] = field(default_factory=list)  # of each round: which classes had a prototype
    is_new: list[bool] = field(default_factory=list)  # whether the upload differed from the one before
    last_vectors: Tensor | None = None

    def to_scores(self) -> MembershipScores:
        """The scores of all rounds."""
        return MembershipScores(
            self.candidates, self.rounds, torch.stack(self.scores), torch.stack(self.has_prototype), self.is_new
        )


class MembershipAttack:
    """The membership attack on every client, over the configured rounds.

    It reads private samples to know the true memberships, so its results are for simulations only. During the
    run it only computes scores; all metrics are computed together at the end.
    """

    def __init__(self, context: AttackContext) -> None:
        self.config, self.streams = context.config, context.streams.fork("mia")
        self.targets: dict[str, _TargetClient | None] = {}
        self.seconds = 0.0
        self._saved_state: Mapping[str, Any] = {}

    def observe(self, round_uploads: RoundUploads) -> None:
        """Score every candidate of every client against the client's upload."""
        begin = time.perf_counter()
        for name, upload in round_uploads.uploads.items():
            client = round_uploads.clients[name]
            target = self._target_for(client)
            if target is not None and bool(torch.isin(target.candidates.classes, upload.labels).any()):
                self._score_upload(client, target, upload, round_uploads.round)
        self.seconds += time.perf_counter() - begin

    def _target_for(self, client: Client) -> _TargetClient | None:
        if client.id not in self.targets:
            candidates = sample_candidates(client.shard, client.id, self.streams)
            self.targets[client.id] = None if candidates is None else self._make_target(client, candidates)
        return self.targets[client.id]

    def _make_target(self, client: Client, candidates: Candidates) -> _TargetClient:
        """A new target, with the scores of a checkpoint if there are any."""
        covariance = _fit_public_covariance(client, candidates) if self.config.likelihood_ratio else None
        target = _TargetClient(candidates, covariance)
        saved = self._saved_state.get(client.id)
        if saved is not None:
            target.rounds, target.is_new = list(saved["rounds"]), list(saved["fresh"])
            target.scores, target.has_prototype = list(saved["scores"]), list(saved["told"])
            target.last_vectors = saved["last"]
        return target

    def _score_upload(self, client: Client, target: _TargetClient, upload: Prototypes, round: int) -> None:
        candidates = target.candidates
        sides = ((client.shard.train, candidates.member_rows), (client.shard.test, candidates.non_member_rows))
        distances, features = [], []
        for samples, rows in sides:
            encoded = adversary_features(client, samples, self.config.adversary_encoder)
            distances.append(negative_distance(encoded, samples.labels, upload)[rows])
            features.append(encoded[rows])
        scores = [torch.cat(distances)]
        if target.covariance is not None:
            vectors = torch.cat(features)
            squared_norms = vectors.square().sum(1)
            scale = _clip_scale(client, squared_norms)
            clipped = CandidateFeatures(vectors, scale, squared_norms * scale.square())
            ratios = membership_log_ratios(candidates, target.covariance, clipped, upload)
            scores.append(ratios.double())
        target.rounds.append(round)
        target.scores.append(torch.stack(scores))
        target.has_prototype.append(torch.isin(candidates.classes, upload.labels))
        target.is_new.append(target.last_vectors is None or not torch.equal(target.last_vectors, upload.vectors))
        target.last_vectors = upload.vectors

    def state_dict(self) -> dict[str, Any]:
        """The scores of every client and round."""
        targets = {
            name: {
                "rounds": target.rounds,
                "fresh": target.is_new,
                "scores": target.scores,
                "told": target.has_prototype,
                "last": target.last_vectors,
            }
            for name, target in self.targets.items()
            if target is not None
        }
        return {"seconds": self.seconds, "targets": {**self._saved_state, **targets}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the scores; candidates and permutations are drawn again from the same streams."""
        self.seconds, self._saved_state = float(state["seconds"]), state["targets"]

    def result(self) -> dict[str, Any]:
        """For every adversary: mean and standard deviation over rounds beside the null values."""
        begin = time.perf_counter()
        scores = {
            name: target.to_scores() for name, target in self.targets.items() if target is not None and target.rounds
        }
        metrics = membership_result(scores)
        seconds = self.seconds + time.perf_counter() - begin
        return {"phi": self.config.adversary_encoder, **metrics, "seconds": seconds}


def negative_distance(
    features: Float[Tensor, "n d"], labels: Int[Tensor, " n"], prototypes: Prototypes
) -> Float64[Tensor, " n"]:
    """-|φ(x) - p|² to the nearest prototype of each sample's class; -inf if there is none.

    In double precision: under noise |p|² is so large that single precision would lose the other terms.
    """
    products = (features @ prototypes.vectors.T).double()
    scores = 2 * products - prototypes.vectors.double().square().sum(1)
    best: Tensor = scores.masked_fill(labels[:, None] != prototypes.labels, -torch.inf).amax(1)
    return best - features.square().sum(1)


def _fit_public_covariance(client: Client, candidates: Candidates) -> CovarianceModel:
    public = client.shard.test.frozen_features[candidates.non_member_rows]
    return fit_covariance(candidates, public * _clip_scale(client, public.square().sum(1))[:, None])


def _clip_scale(client: Client, squared_norms: Float[Tensor, " s"]) -> Float[Tensor, " s"]:
    """The factor by which clipping scales features of these squared norms; 1 without privacy."""
    if not client.release_config.mechanism.traits.is_private:
        return torch.ones(len(squared_norms))
    return (client.release_config.clip_norm / squared_norms.sqrt().clamp(min=1e-12)).clamp(max=1)
