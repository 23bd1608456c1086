"""Feature inversion: search for inputs whose features match uploaded prototypes. The attack `fsh`.

The kind is short for feature-space hijacking. `invert` is the search itself (Adam on a batch of targets), and
`FeatureInversionAttack` applies it to the uploads of a run. Every metric of the reconstructions stands beside its
value for reconstructions that are assigned to classes at random.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import torch

from vpdr.attacks.base import AttackContext, CheckpointState, InputFeatureMap, InputSpace, adversary_feature_map
from vpdr.client import Client
from vpdr.federation import RoundUploads
from vpdr.io import from_json
from vpdr.prototypes import ClassMeans
from vpdr.records import AttackedRound, AttackMetric, AttackResult
from vpdr.types import Features, Float, Int, Prototypes, Tensor
from vpdr.validation import at_least, positive

BATCH_SIZE = 16  # targets of one search
MAX_CLASSES = 10  # attacked classes of one upload
TIMED_STEPS = 3  # steps of the cost estimate
_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8  # Adam

INVERSION_METRICS = ("cos", "cos_clean", "cffd", "cffd_pooled", "top1")
RIDGE = 1e-6  # added to both covariances of a pooled Fréchet distance, so that few points suffice

MetricValues = dict[str, dict[str, float]]  # metric -> value and null


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
    best_variables = initial_variables.clone()
    best_losses = torch.full((len(targets),), torch.inf, device=targets.device)
    reference_losses = best_losses.clone()  # progress is a loss below this by the tolerance
    steps_without_progress = torch.zeros(len(targets), dtype=torch.int64, device=targets.device)
    steps = torch.zeros_like(steps_without_progress)
    # The targets that have not stopped, and the state of their optimiser.
    active = torch.arange(len(targets), device=targets.device)
    variables = initial_variables.clone()
    first_moment, second_moment = torch.zeros_like(variables), torch.zeros_like(variables)
    for step in range(1, config.steps + 1):
        variables = variables.detach().requires_grad_(True)
        inputs = space.decode(variables)
        distances = (feature_map(inputs) - targets).square().sum(1)
        losses = distances + config.tv_weight * space.total_variation(inputs)
        (gradients,) = torch.autograd.grad(losses.sum(), variables)
        with torch.no_grad():
            better = losses < best_losses[active]
            best_losses[active[better]] = losses[better]
            best_variables[active[better]] = variables[better]
            progressed = losses < reference_losses[active] - config.tolerance
            reference_losses[active[progressed]] = losses[progressed]
            steps_without_progress[active] = torch.where(progressed, 0, steps_without_progress[active] + 1)
            steps[active] = step
            stays = (steps_without_progress[active] < config.patience) | (step < config.min_steps)
            if not bool(stays.any()):
                break
            if not bool(stays.all()):
                active, targets, variables = active[stays], targets[stays], variables[stays]
                gradients, first_moment, second_moment = gradients[stays], first_moment[stays], second_moment[stays]
            first_moment.lerp_(gradients, 1 - _BETA1)
            second_moment.mul_(_BETA2).addcmul_(gradients, gradients, value=1 - _BETA2)
            scale = (second_moment / (1 - _BETA2**step)).sqrt_().add_(_EPS)
            variables = variables - config.lr / (1 - _BETA1**step) * first_moment / scale
    return InversionResult(space.decode(best_variables).detach(), best_losses, steps)


@dataclass(frozen=True, slots=True)
class InversionJob:
    """One batch of targets of one client."""

    client: Client
    targets: Prototypes
    initial_variables: Float[Tensor, "b *shape"]


class FeatureInversionAttack:
    """The reconstruction attack on every client, over the configured rounds.

    It reads private samples to evaluate the reconstructions, so its results are for simulations only.
    """

    def __init__(self, context: AttackContext) -> None:
        self.context, self.config = context, context.config
        self.streams = context.streams.fork("fsh")
        self.inversion_config = InversionConfig(steps=context.config.steps)
        # one worker per core; an accelerator takes one batch after the other
        self.workers = 1 if self.config.device != "cpu" else self.config.workers or len(os.sched_getaffinity(0))
        self.round_results: list[AttackedRound] = []
        self.seconds = 0.0
        self._spaces: dict[str, InputSpace] = {}
        self._estimate_logged = False

    def observe(self, round_uploads: RoundUploads) -> None:
        begin, round = time.perf_counter(), round_uploads.round
        targets = {
            name: one_prototype_per_class(upload)
            for name, upload in round_uploads.uploads.items()
            if len(upload.labels)
        }
        jobs: list[InversionJob] = []
        for name, prototypes in targets.items():
            jobs += self._make_jobs(round_uploads.clients[name], prototypes, round)
        if not jobs:
            return
        results = self._run_jobs(jobs, round)
        metrics: dict[str, MetricValues] = {}
        for name, prototypes in targets.items():
            client = round_uploads.clients[name]
            inputs = torch.cat(
                [result.inputs for job, result in zip(jobs, results, strict=True) if job.client.id == name]
            )
            metrics[name] = self._evaluate(client, prototypes, inputs)
            if self.context.reconstruction_store is not None:
                labels, images = prototypes.labels.numpy(), self._space_for(client).contains_images
                self.context.reconstruction_store.save(round, name, labels, inputs.numpy(), images=images)
        steps = torch.cat([result.steps for result in results]).double()
        mean = {  # over the clients that have the metric
            metric: {
                key: _finite_mean([values[metric][key] for values in metrics.values() if metric in values])
                for key in ("value", "null")
            }
            for metric in INVERSION_METRICS
        }
        self.round_results.append(
            AttackedRound(round=round, targets=len(steps), steps=float(steps.mean()), mean=mean, clients=metrics)
        )
        self.seconds += time.perf_counter() - begin

    def _space_for(self, client: Client) -> InputSpace:
        """The input space of a client on the configured device; created once."""
        if client.id not in self._spaces:
            self._spaces[client.id] = self.context.input_space_for(client.id).to(self.config.device)
        return self._spaces[client.id]

    def _make_jobs(self, client: Client, targets: Prototypes, round: int) -> list[InversionJob]:
        """Batches of targets; each start has its own random stream, so that batching changes nothing."""
        shape = self._space_for(client).shape
        generators = [
            self.streams.generator(f"start {label}", client=client.id, round=round) for label in targets.labels.tolist()
        ]
        starts = torch.stack([self.inversion_config.init_std * torch.randn(shape, generator=rng) for rng in generators])
        return [
            InversionJob(client, Prototypes(targets.vectors[part], targets.labels[part]), starts[part])
            for part in (slice(i, i + BATCH_SIZE) for i in range(0, len(starts), BATCH_SIZE))
        ]

    def _run_jobs(self, jobs: list[InversionJob], round: int) -> list[InversionResult]:
        """Run all jobs in parallel; before the very first one the expected cost is reported.

        Each worker has one torch thread: several threads on one small layer only wait for each other.
        """
        threads, results = torch.get_num_threads(), []
        initializer: Callable[[int], None] = torch.set_num_threads
        try:
            with ThreadPoolExecutor(self.workers, initializer=initializer, initargs=(1,)) as executor:
                if not self._estimate_logged:
                    self._estimate_logged = True
                    self.context.callbacks.on_message(self._estimate_cost(jobs, executor))
                for result in executor.map(lambda job: self._run_job(job, self.inversion_config), jobs):
                    results.append(result)
                    self.context.callbacks.progress(f"reconstructions of round {round}", len(results), len(jobs))
        finally:
            torch.set_num_threads(threads)
        return results

    def _run_job(self, job: InversionJob, config: InversionConfig) -> InversionResult:
        device, space = self.config.device, self._space_for(job.client)
        feature_map = adversary_feature_map(job.client, space, self.config.adversary_encoder, device)
        result = invert(feature_map, space, job.targets.vectors.to(device), job.initial_variables.to(device), config)
        return InversionResult(result.inputs.cpu(), result.losses.cpu(), result.steps.cpu())

    def _estimate_cost(self, jobs: list[InversionJob], executor: ThreadPoolExecutor) -> str:
        """An upper bound on the time (no target stops early), from a few steps on every core at once."""
        workers, steps = self.workers, self.inversion_config.steps
        warm_up, timed = InversionConfig(steps=1), InversionConfig(steps=TIMED_STEPS)
        list(executor.map(lambda job: self._run_job(job, warm_up), jobs[:1]))  # the first pass is slow
        begin = time.perf_counter()
        list(executor.map(lambda job: self._run_job(job, timed), (jobs * workers)[:workers]))
        rounds = len(self.config.rounds) or self.context.total_rounds
        seconds = (time.perf_counter() - begin) / TIMED_STEPS * steps * -(-len(jobs) // workers) * rounds
        targets = sum(len(job.targets.labels) for job in jobs)
        return (
            f"fsh: {targets} targets a round, at most {steps} steps, {rounds} round{'s'[: rounds > 1]}: at most about "
            f"{f'{seconds:.0f} s' if seconds < 90 else f'{seconds / 60:.0f} min'} "
            f"on {workers} worker{'s'[: workers > 1]}"
        )

    @torch.no_grad()
    def _evaluate(self, client: Client, targets: Prototypes, inputs: Float[Tensor, "p *shape"]) -> MetricValues:
        device, train = self.config.device, client.shard.train
        views = []
        for encoder in (self.config.adversary_encoder, "client"):
            feature_map = adversary_feature_map(client, self._space_for(client), encoder, device)
            views.append(torch.cat([feature_map(part.to(device)).cpu() for part in inputs.split(BATCH_SIZE)]))
        true_features = Features(client.released_features(train), train.labels)
        return evaluate_reconstructions(targets, views[0], views[1], true_features)

    def state_dict(self) -> CheckpointState:
        return {"rounds": [asdict(each) for each in self.round_results], "seconds": self.seconds}

    def load_state_dict(self, state: CheckpointState) -> None:
        """Restore the results; nothing else is carried from round to round."""
        self.round_results = [from_json(AttackedRound, each, "an attacked round") for each in state["rounds"]]
        self.seconds = float(state["seconds"])

    def result(self) -> AttackResult:
        """Mean and standard deviation over rounds, beside the values of randomly assigned reconstructions."""
        return AttackResult(
            phi=self.config.adversary_encoder,
            space="pictures" if any(s.contains_images for s in self._spaces.values()) else "embeddings",
            steps=self.inversion_config.steps,
            rounds=tuple(self.round_results),
            summary=summarise_inversion(self.round_results) if self.round_results else {},
            seconds=self.seconds,
        )


def one_prototype_per_class(prototypes: Prototypes) -> Prototypes:
    """The first prototype of each class, for the first `MAX_CLASSES` classes in ascending order."""
    labels = prototypes.labels.unique()[:MAX_CLASSES]
    rows = torch.stack([(prototypes.labels == label).nonzero()[0, 0] for label in labels])
    return Prototypes(prototypes.vectors[rows], labels)


def evaluate_reconstructions(
    targets: Prototypes,
    adversary_view: Float[Tensor, "p d"],
    client_view: Float[Tensor, "p d"],
    true_features: Features,
) -> MetricValues:
    """The metrics of one client, from the features of its training samples and of the reconstructions.

    The reconstructions are seen under the adversary's encoder, and under the one that the client releases with.
    The null value is the mean over all assignments of reconstructions to targets: what a reconstruction
    without any knowledge of its class would score.
    """
    clean = ClassMeans()(true_features.vectors, true_features.labels)
    in_data = torch.isin(targets.labels, clean.labels)
    metrics = {
        "cos": _matched_and_null_mean(
            torch.nn.functional.normalize(adversary_view) @ torch.nn.functional.normalize(targets.vectors).T
        )
    }
    if not bool(in_data.any()):
        return metrics
    labels, client_view = targets.labels[in_data], client_view[in_data]
    rows, clean_means = torch.searchsorted(clean.labels, labels), clean.vectors.to(client_view)
    metrics["cos_clean"] = _matched_and_null_mean(
        torch.nn.functional.normalize(client_view) @ torch.nn.functional.normalize(clean_means[rows]).T
    )
    nearest = torch.cdist(client_view, clean_means).argmin(1)
    metrics["top1"] = _matched_and_null_mean((nearest[:, None] == rows[None]).float())
    by_class = [true_features.vectors[true_features.labels == label] for label in labels.tolist()]
    distances = torch.tensor([[frechet_to_class(point, real) for real in by_class] for point in client_view])
    metrics["cffd"] = _matched_and_null_mean(distances)
    same_classes = true_features.vectors[torch.isin(true_features.labels, labels)]
    metrics["cffd_pooled"] = {"value": pooled_frechet(client_view, same_classes), "null": float("nan")}
    return metrics


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


def summarise_inversion(rounds: Sequence[AttackedRound]) -> dict[str, AttackMetric]:
    """Mean and standard deviation (ddof 0) over rounds, the null value, and the difference."""
    summary = {}
    for metric in INVERSION_METRICS:
        values = [each.mean[metric]["value"] for each in rounds]
        mean, null = _finite_mean(values), _finite_mean([each.mean[metric]["null"] for each in rounds])
        variance = _finite_mean([(value - mean) ** 2 for value in values])
        summary[metric] = AttackMetric(mean=mean, std=math.sqrt(variance), null=null, corrected=mean - null)
    return summary


def _finite_mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else float("nan")
