"""Do the scores S_j say what mutual information says, and what is left of it under the cap H?"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from vpdr.mechanisms.scores import anova_scores
from vpdr.report.figures import canvas, drawn
from vpdr.reproduce.figures.replay import Album
from vpdr.reproduce.labels import heading
from vpdr.reproduce.verdicts import AGREES, DIFFERS, NOT_JUDGED
from vpdr.types import Features

if TYPE_CHECKING:
    from vpdr.report.figures import Figure

NEIGHBOURS, CLAIMED = 3, 0.90
Scatter = dict[str, Any]


def scatters(album: Album, cap: float, seed: int) -> list[Scatter]:
    """For each round and client: scores, mutual information and their correlations, also after the cap."""
    found = []
    for t, clients in album.items():
        for name, (vectors, labels) in clients.items():
            scores = anova_scores(Features(vectors, labels)).double().numpy()
            known = information(vectors, labels, seed)
            capped = np.clip(scores, 0.0, cap)
            found.append(
                {
                    "round": t,
                    "client": name,
                    "scores": scores.tolist(),
                    "information": known.tolist(),
                    "saturated": float(np.mean(scores >= cap)),
                    **{f"{key}": value for key, value in _correlations(scores, known).items()},
                    **{f"{key}_capped": value for key, value in _correlations(capped, known).items()},
                }
            )
    return found


def information(vectors: Float[Tensor, "n d"], labels: Int[Tensor, " n"], seed: int) -> np.ndarray[Any, Any]:
    """I(z_j; y) of every coordinate by the k-nearest-neighbour estimator."""
    from sklearn.feature_selection import mutual_info_classif

    found: np.ndarray[Any, Any] = mutual_info_classif(
        vectors.double().numpy(), labels.numpy(), n_neighbors=NEIGHBOURS, random_state=seed
    )
    return found


def _correlations(scores: np.ndarray[Any, Any], known: np.ndarray[Any, Any]) -> dict[str, float | None]:
    """Pearson and Spearman; None where one side does not vary."""
    from scipy.stats import pearsonr, spearmanr

    if np.ptp(scores) == 0 or np.ptp(known) == 0:
        return {"pearson": None, "spearman": None}
    return {
        "pearson": float(pearsonr(scores, known).statistic),
        "spearman": float(spearmanr(scores, known).statistic),
    }


def claims(summary: Mapping[str, Any], found: list[Scatter]) -> list[dict[str, Any]]:
    """The paper says above 0.90 in each domain, and says nothing of the cap."""
    told = []
    for each in found:
        both = [each["pearson"], each["spearman"]]
        high = all(value is not None and math.isfinite(value) and value > CLAIMED for value in both)
        words = NOT_JUDGED if summary["smoke"] else AGREES if high else DIFFERS
        capped = f"{_text(each['pearson_capped'])} / {_text(each['spearman_capped'])}"
        told.append(
            {
                "claim": f"{each['client']}, round {each['round']}: Pearson / Spearman of S_j and I(z_j; y)",
                "paper": f"> {CLAIMED:.2f}",
                "ours": f"{_text(both[0])} / {_text(both[1])}; capped at H: {capped} "
                f"({100 * each['saturated']:.1f} % of scores at H)",
                "verdict": words,
            }
        )
    return told


def _text(value: float | None) -> str:
    return "undefined (all equal)" if value is None else f"{value:.3f}"


@drawn
def correlation(summary: Mapping[str, Any], found: list[Scatter]) -> "Figure":
    """A scatter for each client (across) and round (down)."""
    rounds = list(dict.fromkeys(each["round"] for each in found))
    clients = list(dict.fromkeys(each["client"] for each in found))
    figure, grid = canvas(len(clients), len(rounds), (2.9 * len(clients), 2.7 * len(rounds)))
    for each in found:
        axes = grid[rounds.index(each["round"]), clients.index(each["client"])]
        axes.plot(each["information"], each["scores"], ".", color="#0072B2", markersize=3, alpha=0.6)
        axes.set(
            title=f"{each['client']}, round {each['round']}: r = {_text(each['pearson'])}",
            xlabel="I(z_j; y), nats",
        )
    for axes in grid[:, 0]:
        axes.set_ylabel("S_j (unclipped)")
    figure.suptitle(heading(summary), fontsize=10)
    return figure
