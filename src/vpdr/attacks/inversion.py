"""Metrics of reconstructions, each beside its value for reconstructions assigned to classes at random."""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from vpdr.attacks.base import AttackConfig, AttackContext, Reconstructions
from vpdr.attacks.spaces import InputFeatureMap, InputSpace, adversary_feature_map
from vpdr.client import Client
from vpdr.federation import RoundUploads
from vpdr.prototypes import ClassMeans
from vpdr.types import Features, Prototypes
from vpdr.validation import at_least, positive

INVERSION_METRICS = ("cos", "cos_clean", "cffd", "cffd_pooled", "top1")
RIDGE = 1e-6  # added to both covariances of a pooled Fréchet distance, so that few points suffice

MetricValues = dict[str, dict[str, float]]  # metric -> value and null


def evaluate_reconstructions(
    targets: Prototypes,
    adversary_view: Float[Tensor, "p d"],
    client_view: Float[Tensor, "p d"],
    true_features: Features,
) -> MetricValues:
    """The metrics of one client.

    The null value is the mean over all assignments of reconstructions to targets: what a reconstruction
    without any knowledge of its class would score.

    Args:
        targets: the attacked prototypes.
        adversary_view: features of the reconstructions under the adversary's encoder.
        client_view: features of the reconstructions under the encoder that the client releases with.
        true_features: features of the client's training samples.
    """
    clean = ClassMeans()(true_features.vectors, true_features.labels)
    in_data = torch.isin(targets.labels, clean.labels)
    metrics = {"cos": _matched_and_null_mean(F.normalize(adversary_view) @ F.normalize(targets.vectors).T)}
    if bool(in_data.any()):
        rows = torch.searchsorted(clean.labels, targets.labels[in_data])
        client_view = client_view[in_data]
        clean_means = clean.vectors.to(client_view)
        metrics["cos_clean"] = _matched_and_null_mean(F.normalize(client_view) @ F.normalize(clean_means[rows]).T)
        nearest = torch.cdist(client_view, clean_means).argmin(1)
        metrics["top1"] = _matched_and_null_mean((nearest[:, None] == rows[None]).float())
        metrics |= _frechet_metrics(client_view, targets.labels[in_data], true_features)
    return metrics


def _frechet_metrics(
    client_view: Float[Tensor, "p d"], labels: Int[Tensor, " p"], true_features: Features
) -> MetricValues:
    by_class = [true_features.vectors[true_features.labels == label] for label in labels.tolist()]
    table = torch.tensor([[frechet_to_class(point, real) for real in by_class] for point in client_view])
    same_classes = true_features.vectors[torch.isin(true_features.labels, labels)]
    return {
        "cffd": _matched_and_null_mean(table),
        "cffd_pooled": {"value": pooled_frechet(client_view, same_classes), "null": float("nan")},
    }


def _matched_and_null_mean(table: Float[Tensor, "p p"]) -> dict[str, float]:
    """The mean over matching pairs, and over all pairs."""
    return {"value": float(table.diagonal().mean()), "null": float(table.mean())}


def frechet_distance(
    first: tuple[Float[Tensor, " d"], Float[Tensor, "d d"]], second: tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]
) -> float:
    """`|m₁ - m₂|² + Tr(S₁ + S₂ - 2 (S₁S₂)^½)` of two Gaussians, each given by mean and covariance."""
    (mean1, covariance1), (mean2, covariance2) = first, second
    values, vectors = torch.linalg.eigh(covariance1.double())
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    shared = torch.linalg.eigvalsh(root @ covariance2.double() @ root).clamp(min=0).sqrt().sum()
    squared_distance = (mean1.double() - mean2.double()).square().sum()
    return float(squared_distance + covariance1.double().trace() + covariance2.double().trace() - 2 * shared)


def mean_and_covariance(points: Float[Tensor, "n d"]) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    """Mean and covariance (ddof 1); a single point has covariance 0."""
    mean = points.double().mean(0)
    centred = points.double() - mean
    return mean, centred.T @ centred / max(len(points) - 1, 1)


def frechet_to_class(point: Float[Tensor, " d"], real: Float[Tensor, "n d"]) -> float:
    """The Fréchet distance of one reconstruction to a class; with covariance 0 the matrix root vanishes."""
    mean = real.double().mean(0)
    variance = (real.double() - mean).square().sum() / max(len(real) - 1, 1)
    return float((point.double() - mean).square().sum() + variance)


def pooled_frechet(reconstructed: Float[Tensor, "p d"], real: Float[Tensor, "n d"]) -> float:
    """The distance of all reconstructions of a client to all its features; NaN for fewer than two."""
    if min(len(reconstructed), len(real)) < 2:
        return float("nan")
    ridge = RIDGE * torch.eye(reconstructed.shape[1], dtype=torch.float64)
    (mean1, covariance1), (mean2, covariance2) = (mean_and_covariance(each) for each in (reconstructed, real))
    return frechet_distance((mean1, covariance1 + ridge), (mean2, covariance2 + ridge))


def mean_over_clients(clients: Sequence[MetricValues]) -> MetricValues:
    """The mean of each metric over the clients that have it."""
    return {
        metric: {
            key: _finite_mean([values[metric][key] for values in clients if metric in values])
            for key in ("value", "null")
        }
        for metric in INVERSION_METRICS
    }


def summarise_inversion(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation (ddof 0) over rounds, the null value, and the difference."""
    summary = {}
    for metric in INVERSION_METRICS:
        values = [each["mean"][metric]["value"] for each in rounds]
        mean, null = _finite_mean(values), _finite_mean([each["mean"][metric]["null"] for each in rounds])
        variance = _finite_mean([(value - mean) ** 2 for value in values])
        summary[metric] = {"mean": mean, "std": math.sqrt(variance), "null": null, "corrected": mean - null}
    return summary


def _finite_mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else float("nan")


# Feature inversion: search for inputs whose features match uploaded prototypes. `invert` is the search itself (Adam
# on a batch of targets), `InversionPool` runs many searches in parallel, and `FeatureInversionAttack` applies them
# to the uploads of a run. Its kind is `fsh` in configs and records (feature-space hijacking).


BATCH_SIZE = 16  # targets of one search
MAX_CLASSES = 10  # attacked classes of one upload
TIMED_STEPS = 3  # steps of the cost estimate
_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8  # Adam


@dataclass(frozen=True, kw_only=True, slots=True)
class InversionConfig:
    """Hyperparameters of the search: the paper's values, and defaults for those that it leaves open."""

    steps: int = 10_000
    lr: float = 0.01
    tv_weight: float = 1e-3  # weight of the total variation
    patience: int = 300  # steps without progress before a target stops
    tolerance: float = 1e-6  # smallest decrease of the loss that counts as progress
    min_steps: int = 100  # no target stops earlier
    init_std: float = 0.1  # standard deviation of the initial variables

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, patience=self.patience)
        positive(lr=self.lr)


@dataclass(frozen=True, slots=True)
class InversionResult:
    """The best input of each target, its loss, and the number of steps."""

    inputs: Float[Tensor, "b *shape"]
    losses: Float[Tensor, " b"]
    steps: Int[Tensor, " b"]


def invert(
    feature_map: InputFeatureMap,
    space: InputSpace,
    targets: Float[Tensor, "b d"],
    initial_variables: Float[Tensor, "b *shape"],
    config: InversionConfig,
) -> InversionResult:
    """Minimise |φ(x) - p|² + w · TV(x) for each target by Adam, and return the best iterate of each.

    A target stops when its best loss has not decreased by more than `tolerance` for `patience` steps. Adam
    works coordinate-wise, so that no target depends on the others of its batch.
    """
    state = _InversionState(initial_variables, targets)
    for step in range(1, config.steps + 1):
        variables = state.variables.requires_grad_(True)
        inputs = space.decode(variables)
        distances = (feature_map(inputs) - state.targets).square().sum(1)
        losses = distances + config.tv_weight * space.total_variation(inputs)
        (gradients,) = torch.autograd.grad(losses.sum(), variables)
        with torch.no_grad():
            state.update_best(losses, step, config)
            if not len(state.active):
                break
            state.adam_step(gradients[state.remaining], step, config)
    return InversionResult(space.decode(state.best_variables).detach(), state.best_losses, state.steps)


class _InversionState:
    """Optimiser state of the active targets, and the best iterates of all."""

    def __init__(self, initial_variables: Float[Tensor, "b *shape"], targets: Float[Tensor, "b d"]) -> None:
        count, device = len(initial_variables), initial_variables.device
        self.variables, self.targets = initial_variables.clone(), targets
        self.first_moment = torch.zeros_like(initial_variables)
        self.second_moment = torch.zeros_like(initial_variables)
        self.active = torch.arange(count, device=device)  # targets that have not stopped
        self.remaining = self.active  # rows of the last step that stay active
        self.best_variables = initial_variables.clone()
        self.best_losses = torch.full((count,), torch.inf, device=device)
        self.reference_losses = self.best_losses.clone()  # progress is a loss below this by the tolerance
        self.steps_without_progress = torch.zeros(count, dtype=torch.int64, device=device)
        self.steps = torch.zeros_like(self.steps_without_progress)

    def update_best(self, losses: Float[Tensor, " a"], step: int, config: InversionConfig) -> None:
        """Record improvements, and drop targets without progress."""
        rows = self.active
        self.variables = self.variables.detach()
        better = losses < self.best_losses[rows]
        self.best_losses[rows[better]] = losses[better]
        self.best_variables[rows[better]] = self.variables[better]
        progressed = losses < self.reference_losses[rows] - config.tolerance
        self.reference_losses[rows[progressed]] = losses[progressed]
        self.steps_without_progress[rows] = torch.where(progressed, 0, self.steps_without_progress[rows] + 1)
        self.steps[rows] = step
        stays = (self.steps_without_progress[rows] < config.patience) | (step < config.min_steps)
        self.remaining = stays.nonzero()[:, 0]
        if len(self.remaining) < len(rows):
            self.active, self.targets = rows[self.remaining], self.targets[self.remaining]
            self.variables = self.variables[self.remaining]
            self.first_moment = self.first_moment[self.remaining]
            self.second_moment = self.second_moment[self.remaining]

    def adam_step(self, gradients: Float[Tensor, "a *shape"], step: int, config: InversionConfig) -> None:
        """One step of Adam on the active targets."""
        self.first_moment.lerp_(gradients, 1 - _BETA1)
        self.second_moment.mul_(_BETA2).addcmul_(gradients, gradients, value=1 - _BETA2)
        scale = (self.second_moment / (1 - _BETA2**step)).sqrt_().add_(_EPS)
        self.variables = self.variables - config.lr / (1 - _BETA1**step) * self.first_moment / scale


@dataclass(frozen=True, slots=True)
class InversionJob:
    """One batch of targets of one client."""

    client: Client
    space: InputSpace
    targets: Prototypes
    initial_variables: Float[Tensor, "b *shape"]


class InversionPool:
    """Runs the searches of a round in parallel, one per core."""

    def __init__(self, context: AttackContext, inversion_config: InversionConfig) -> None:
        self.context, self.attack_config, self.inversion_config = context, context.config, inversion_config
        self._estimate_logged = False

    def run(self, jobs: list[InversionJob], round: int) -> list[InversionResult]:
        """Run all jobs; before the very first one the expected cost is reported."""
        with _single_threaded_executor(_worker_count(self.attack_config)) as executor:
            if not self._estimate_logged:
                self._estimate_logged = True
                self.context.on_message(self._estimate_cost(jobs, executor))
            results = []
            for result in executor.map(lambda job: self._run_job(job, self.inversion_config), jobs):
                results.append(result)
                self.context.progress(f"reconstructions of round {round}", len(results), len(jobs))
        return results

    def _run_job(self, job: InversionJob, config: InversionConfig) -> InversionResult:
        device = self.attack_config.device
        feature_map = adversary_feature_map(job.client, job.space, self.attack_config.adversary_encoder, device)
        targets, initial_variables = job.targets.vectors.to(device), job.initial_variables.to(device)
        result = invert(feature_map, job.space, targets, initial_variables, config)
        return InversionResult(result.inputs.cpu(), result.losses.cpu(), result.steps.cpu())

    def _estimate_cost(self, jobs: list[InversionJob], executor: ThreadPoolExecutor) -> str:
        """An upper bound on the time (no target stops early), from a few steps on every core at once."""
        workers, steps = _worker_count(self.attack_config), self.inversion_config.steps
        warm_up, timed = InversionConfig(steps=1), InversionConfig(steps=TIMED_STEPS)
        list(executor.map(lambda job: self._run_job(job, warm_up), jobs[:1]))  # the first pass is slow
        begin = time.perf_counter()
        list(executor.map(lambda job: self._run_job(job, timed), (jobs * workers)[:workers]))
        seconds = (time.perf_counter() - begin) / TIMED_STEPS * steps * -(-len(jobs) // workers)
        rounds = len(self.attack_config.rounds) or self.context.total_rounds
        targets = sum(len(job.targets.labels) for job in jobs)
        return (
            f"fsh: {targets} targets a round, at most {steps} steps, {rounds} round{'s'[: rounds > 1]}: "
            f"at most about {_format_duration(seconds * rounds)} on {workers} worker{'s'[: workers > 1]}"
        )


def _worker_count(config: AttackConfig) -> int:
    """One per core; an accelerator takes one batch after the other."""
    return 1 if config.device != "cpu" else config.workers or len(os.sched_getaffinity(0))


@contextmanager
def _single_threaded_executor(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Workers with one torch thread each: several threads on one small layer only wait for each other."""
    threads = torch.get_num_threads()
    initializer: Callable[[int], None] = torch.set_num_threads
    try:
        with ThreadPoolExecutor(workers, initializer=initializer, initargs=(1,)) as executor:
            yield executor
    finally:
        torch.set_num_threads(threads)


def _format_duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class FeatureInversionAttack:
    """The reconstruction attack on every client, over the configured rounds.

    It reads private samples to evaluate the reconstructions, so its results are for simulations only.
    """

    def __init__(self, context: AttackContext) -> None:
        self.context, self.config = context, context.config
        self._spaces: dict[str, InputSpace] = {}
        self.streams = context.streams.fork("fsh")
        self.inversion_config = InversionConfig(steps=context.config.steps)
        self.pool = InversionPool(context, self.inversion_config)
        self.round_results: list[dict[str, Any]] = []
        self.seconds = 0.0

    def observe(self, round_uploads: RoundUploads) -> None:
        """Reconstruct inputs from all uploads of a round, and evaluate them."""
        begin, round = time.perf_counter(), round_uploads.round
        targets = {
            name: one_prototype_per_class(upload)
            for name, upload in round_uploads.uploads.items()
            if len(upload.labels)
        }
        jobs = [
            job
            for name, prototypes in targets.items()
            for job in self._make_jobs(round_uploads.clients[name], prototypes, round)
        ]
        if not jobs:
            return
        results = self.pool.run(jobs, round)
        metrics: dict[str, MetricValues] = {}
        for name, prototypes in targets.items():
            client = round_uploads.clients[name]
            inputs = torch.cat(
                [result.inputs for job, result in zip(jobs, results, strict=True) if job.client.id == name]
            )
            metrics[name] = self._evaluate(client, prototypes, inputs)
            are_images = self._space_for(client).contains_images
            self.context.save_reconstructions(Reconstructions(round, name, prototypes.labels, inputs, are_images))
        steps = torch.cat([result.steps for result in results]).double()
        self.round_results.append(
            {
                "round": round,
                "targets": len(steps),
                "steps": float(steps.mean()),
                "mean": mean_over_clients(list(metrics.values())),
                "clients": metrics,
            }
        )
        self.seconds += time.perf_counter() - begin

    def _space_for(self, client: Client) -> InputSpace:
        """The input space of a client on the configured device; created once."""
        if client.id not in self._spaces:
            self._spaces[client.id] = self.context.input_space_for(client.id).to(self.config.device)
        return self._spaces[client.id]

    def _make_jobs(self, client: Client, targets: Prototypes, round: int) -> list[InversionJob]:
        """Batches of targets; each start has its own random stream, so that batching changes nothing."""
        space = self._space_for(client)
        generators = [
            self.streams.generator(f"start {label}", client=client.id, round=round) for label in targets.labels.tolist()
        ]
        starts = torch.stack(
            [self.inversion_config.init_std * torch.randn(space.shape, generator=rng) for rng in generators]
        )
        return [
            InversionJob(client, space, Prototypes(targets.vectors[part], targets.labels[part]), starts[part])
            for part in (slice(i, i + BATCH_SIZE) for i in range(0, len(starts), BATCH_SIZE))
        ]

    @torch.no_grad()
    def _evaluate(self, client: Client, targets: Prototypes, inputs: Float[Tensor, "p *shape"]) -> MetricValues:
        device, train = self.config.device, client.shard.train
        feature_maps = [
            adversary_feature_map(client, self._space_for(client), encoder, device)
            for encoder in (self.config.adversary_encoder, "client")
        ]
        adversary_view, client_view = (
            torch.cat([feature_map(part.to(device)).cpu() for part in inputs.split(BATCH_SIZE)])
            for feature_map in feature_maps
        )
        true_features = Features(client.released_features(train), train.labels)
        return evaluate_reconstructions(targets, adversary_view, client_view, true_features)

    def state_dict(self) -> dict[str, Any]:
        """The results so far."""
        return {"rounds": self.round_results, "seconds": self.seconds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the results; nothing else is carried from round to round."""
        self.round_results, self.seconds = list(state["rounds"]), float(state["seconds"])

    def result(self) -> dict[str, Any]:
        """Mean and standard deviation over rounds, beside the values of randomly assigned reconstructions."""
        return {
            "phi": self.config.adversary_encoder,
            "space": "pictures" if any(s.contains_images for s in self._spaces.values()) else "embeddings",
            "steps": self.inversion_config.steps,
            "rounds": self.round_results,
            "summary": summarise_inversion(self.round_results) if self.round_results else {},
            "seconds": self.seconds,
        }


def one_prototype_per_class(prototypes: Prototypes) -> Prototypes:
    """The first prototype of each class, for the first `MAX_CLASSES` classes in ascending order."""
    labels = prototypes.labels.unique()[:MAX_CLASSES]
    rows = torch.stack([(prototypes.labels == label).nonzero()[0, 0] for label in labels])
    return Prototypes(prototypes.vectors[rows], labels)
