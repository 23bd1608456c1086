"""Figures that need the features of a run: score correlation, t-SNE, and the time of VPDR's parts.

A run is replayed to get its features at some rounds; the same config and seed give the same features.
"""

import io
import math
import statistics
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.client import Client, Samples
from vpdr.config import RunConfig
from vpdr.federation import Callbacks, RunState, build, simulate
from vpdr.io import write_atomically
from vpdr.mechanisms import ReleaseContext, SeededNoise, Vpp, anova_scores
from vpdr.report.figures import make_subplots, with_style
from vpdr.reproduce.summary import AGREES, DIFFERS, SMOKE_VERDICT, StudySummary, page_title
from vpdr.rng import Streams
from vpdr.types import Features

if TYPE_CHECKING:
    from vpdr.report.figures import Figure

LabelledFeatures = tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]
FeatureSnapshots = dict[int, dict[str, LabelledFeatures]]  # round -> client -> features and labels
ScatterData = dict[str, Any]  # one of the summary's "scatters"
MapData = dict[str, Any]  # one of the summary's "maps"
MI_NEIGHBOURS, CLAIMED_CORRELATION = 3, 0.90
MAX_TSNE_SAMPLES, PERPLEXITY = 1000, 30.0
TIMING_REPEATS = 15


def replay_features(config: RunConfig, rounds: Sequence[int], *, test: bool, directory: Path) -> FeatureSnapshots:
    """The features of each client's own encoder after some rounds; round 0 is before the first.

    The features are private. They are stored in the run's directory, readable by its owner only, so that
    the figure can be drawn again.

    Args:
        config: The run to replay.
        rounds: The rounds at which features are taken.
        test: Whether to take test or training samples.
        directory: The directory of the run.
    """
    file = directory / f"features-{'test' if test else 'train'}-{'-'.join(map(str, rounds))}.npz"
    if file.exists():
        return _load_snapshots(file)
    federation = build(config)
    snapshots: FeatureSnapshots = {}

    def take_snapshot(state: RunState) -> None:
        if state.rounds_done in rounds:
            snapshots[state.rounds_done] = {
                client.id: _client_features(client, test=test) for client in federation.clients
            }

    take_snapshot(RunState(0, {}, []))
    simulate(federation, callbacks=Callbacks(on_round_end=[take_snapshot]))
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(file, _snapshots_to_bytes(snapshots), mode=0o600)
    return snapshots


def _client_features(client: Client, *, test: bool) -> LabelledFeatures:
    samples: Samples = client.shard.test if test else client.shard.train
    return client.personal_features(samples).clone(), samples.labels


def _snapshots_to_bytes(snapshots: FeatureSnapshots) -> bytes:
    arrays: dict[str, Any] = {}
    for round_index, clients in snapshots.items():
        for name, (vectors, labels) in clients.items():
            arrays[f"{round_index}/{name}/x"] = vectors.numpy()
            arrays[f"{round_index}/{name}/y"] = labels.numpy()
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _load_snapshots(file: Path) -> FeatureSnapshots:
    snapshots: FeatureSnapshots = {}
    with np.load(file, allow_pickle=False) as arrays:
        for key in arrays.files:
            round_index, name, part = key.split("/")
            if part == "x":
                labels = torch.from_numpy(arrays[f"{round_index}/{name}/y"])
                snapshots.setdefault(int(round_index), {})[name] = (torch.from_numpy(arrays[key]), labels)
    return snapshots


def score_scatters(snapshots: FeatureSnapshots, cap: float, seed: int) -> list[ScatterData]:
    """ANOVA scores, mutual information and their correlations, with and without the cap on the scores."""
    scatters = []
    for round_index, clients in snapshots.items():
        for name, (vectors, labels) in clients.items():
            scores = anova_scores(Features(vectors, labels)).double().numpy()
            information = mutual_information(vectors, labels, seed)
            capped = _correlations(np.clip(scores, 0.0, cap), information)
            scatters.append(
                {
                    "round": round_index,
                    "client": name,
                    "scores": scores.tolist(),
                    "information": information.tolist(),
                    "saturated": float(np.mean(scores >= cap)),
                    **_correlations(scores, information),
                    **{f"{key}_capped": value for key, value in capped.items()},
                }
            )
    return scatters


def mutual_information(vectors: Float[Tensor, "n d"], labels: Int[Tensor, " n"], seed: int) -> np.ndarray[Any, Any]:
    """I(z_j; y) of every coordinate j by the k-nearest-neighbour estimator."""
    from sklearn.feature_selection import mutual_info_classif

    information: np.ndarray[Any, Any] = mutual_info_classif(
        vectors.double().numpy(), labels.numpy(), n_neighbors=MI_NEIGHBOURS, random_state=seed
    )
    return information


def _correlations(scores: np.ndarray[Any, Any], information: np.ndarray[Any, Any]) -> dict[str, float | None]:
    """Pearson and Spearman correlation; None if one of the variables is constant."""
    from scipy.stats import pearsonr, spearmanr

    if np.ptp(scores) == 0 or np.ptp(information) == 0:
        return {"pearson": None, "spearman": None}
    return {
        "pearson": float(pearsonr(scores, information).statistic),
        "spearman": float(spearmanr(scores, information).statistic),
    }


def correlation_claims(summary: StudySummary, scatters: Sequence[ScatterData]) -> list[dict[str, str]]:
    """The correlations beside the paper's claim, above 0.90 in each domain; it does not mention the cap."""
    claims = []
    for scatter in scatters:
        values = [scatter["pearson"], scatter["spearman"]]
        high = all(value is not None and math.isfinite(value) and value > CLAIMED_CORRELATION for value in values)
        text = " / ".join(map(_correlation_text, values))
        capped = " / ".join(_correlation_text(scatter[f"{name}_capped"]) for name in ("pearson", "spearman"))
        label = f"{scatter['client']}, round {scatter['round']}"
        claims.append(
            {
                "claim": f"{label}: Pearson / Spearman of S_j and I(z_j; y)",
                "paper": f"> {CLAIMED_CORRELATION:.2f}",
                "ours": f"{text}; capped at H: {capped} ({100 * scatter['saturated']:.1f} % of scores at H)",
                "verdict": SMOKE_VERDICT if summary["smoke"] else AGREES if high else DIFFERS,
            }
        )
    return claims


def _correlation_text(value: float | None) -> str:
    return "undefined (all equal)" if value is None else f"{value:.3f}"


@with_style
def draw_correlation(summary: StudySummary, scatters: Sequence[ScatterData]) -> "Figure":
    """Scores against mutual information: clients across, rounds down."""
    figure, panels = _client_panels(scatters, width=2.9, height=2.7)
    for scatter, axes in panels:
        axes.plot(scatter["information"], scatter["scores"], ".", color="#0072B2", markersize=3, alpha=0.6)
        label = f"{scatter['client']}, round {scatter['round']}"
        axes.set(title=f"{label}: r = {_correlation_text(scatter['pearson'])}", xlabel="I(z_j; y), nats")
        if scatter["client"] == scatters[0]["client"]:
            axes.set_ylabel("S_j (unclipped)")
    figure.suptitle(page_title(summary), fontsize=10)
    return figure


def _client_panels(
    entries: Sequence[Mapping[str, Any]], *, width: float, height: float
) -> tuple["Figure", list[tuple[Mapping[str, Any], Any]]]:
    """A figure with one panel per entry: clients across, rounds down."""
    rounds = list(dict.fromkeys(entry["round"] for entry in entries))
    clients = list(dict.fromkeys(entry["client"] for entry in entries))
    figure, grid = make_subplots(len(clients), len(rounds), (width * len(clients), height * len(rounds)))
    panels = [(entry, grid[rounds.index(entry["round"]), clients.index(entry["client"])]) for entry in entries]
    return figure, panels


def tsne_maps(snapshots: FeatureSnapshots, seed: int) -> list[MapData]:
    """For each round and client: t-SNE coordinates and labels of test samples."""
    maps = []
    for round_index, clients in snapshots.items():
        for name, (vectors, labels) in clients.items():
            rng = Streams(seed).generator("tsne", client=name)  # the same samples in every round
            rows = torch.randperm(len(labels), generator=rng)[:MAX_TSNE_SAMPLES]
            points = tsne_embedding(vectors[rows], seed).tolist()
            maps.append({"round": round_index, "client": name, "points": points, "labels": labels[rows].tolist()})
    return maps


def tsne_embedding(vectors: Float[Tensor, "n d"], seed: int) -> np.ndarray[Any, Any]:
    """t-SNE with PCA initialisation, which makes it depend little on the seed."""
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    tsne = TSNE(init="pca", perplexity=perplexity, random_state=seed)
    embedding: np.ndarray[Any, Any] = tsne.fit_transform(vectors.double().numpy())
    return embedding


@with_style
def draw_tsne(summary: StudySummary, maps: Sequence[MapData], method: str) -> "Figure":
    """t-SNE maps coloured by class, with the accuracy as title: clients across, rounds down."""
    metrics = next(row["metrics"] for row in summary["lines"] if row["method"] == method)
    figure, panels = _client_panels(maps, width=2.7, height=2.8)
    for entry, axes in panels:
        points = np.array(entry["points"])
        axes.scatter(points[:, 0], points[:, 1], c=entry["labels"], cmap="tab10", s=5, linewidths=0)
        accuracy = metrics[f"T={entry['round']} {entry['client']}"]["mean"]
        axes.set(title=f"{entry['client']}, T = {entry['round']}: {accuracy:.2f} %", xticks=[], yticks=[])
    clients = {entry["client"] for entry in maps}
    figure.suptitle(textwrap.fill(page_title(summary), 30 * len(clients)), fontsize=10)
    return figure


def time_vpdr_parts(config: RunConfig) -> dict[str, float]:
    """Milliseconds per client and round of VPDR's parts: scores, selection, soft clipping, teacher, KL.

    Each is the median over clients of the median of repeated calls on the features of the initial encoder.
    Parts of a training step are multiplied by the number of steps of a round.
    """
    torch.set_num_threads(config.run.threads)
    clients = build(config).clients
    times = [_time_client_parts(client) for client in clients if len(client.shard.train.labels)]
    return {name: statistics.median(parts[name] for parts in times) for name in times[0]}


def _time_client_parts(client: Client) -> dict[str, float]:
    mechanism = client.release_config.mechanism
    if not isinstance(mechanism, Vpp):
        return {}
    features = Features(client.released_features(client.shard.train), client.shard.train.labels)
    scores = anova_scores(features)
    context = ReleaseContext(client=client.id, noise=SeededNoise(client.streams.generator("timing", client=client.id)))
    return {
        "stats": _median_ms(lambda: anova_scores(features)),
        "topk": _median_ms(lambda: mechanism.selection.choose(scores, mechanism.allocation.num_selected, context)),
        **_time_step_parts(client, features),
    }


def _time_step_parts(client: Client, features: Features) -> dict[str, float]:
    """Soft clipping, the update of the teacher, and the distillation loss."""
    config, regulariser, head = client.train_config, client.regulariser, client.model.head
    batch = features.vectors[: config.batch_size]
    steps = config.epochs * -(-len(features.labels) // config.batch_size)
    logits = head(regulariser.transform_features(batch)).detach()
    weights = torch.ones(len(batch))
    return {
        "clip": steps * _median_ms(lambda: regulariser.transform_features(batch)),
        "teacher": steps * _median_ms(lambda: regulariser.after_step(head)),
        "kl": steps * _median_ms(lambda: regulariser.loss(batch, logits, weights)),
    }


def _median_ms(call: Callable[[], object]) -> float:
    """The median time of a call in milliseconds, after one call to warm up."""
    call()
    times = []
    for _ in range(TIMING_REPEATS):
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)
