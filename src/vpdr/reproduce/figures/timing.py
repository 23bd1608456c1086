"""Time of one client and round: what VPDR adds to its base, in the paper and here."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vpdr.report.figures import canvas, drawn
from vpdr.reproduce.catalogue import paper_numbers
from vpdr.reproduce.labels import framework_label, heading, method_label
from vpdr.reproduce.verdicts import AGREES, DIFFERS, NOT_JUDGED

if TYPE_CHECKING:
    from vpdr.report.figures import Figure

CLOSE = 2.0  # points of overhead
PHASES = {"ProtoGen": ("protogen_ms", ("stats", "topk")), "FT": ("finetune_ms", ("clip", "teacher", "kl"))}


def claims(summary: Mapping[str, Any], parts: Mapping[str, float], base: str) -> list[dict[str, Any]]:
    """The parts beside the paper's, and the overhead of each phase in per cent of the base."""
    printed = paper_numbers()["time_ms_fedproto_office"]
    told = []
    for phase, (metric, names) in PHASES.items():
        measured = _metric(summary, base, metric)
        extra = sum(parts[name] for name in names)
        theirs = printed[phase]
        ours = "—" if not measured else f"{measured:.2f} + {' + '.join(f'{parts[n]:.3f}' for n in names)} ms"
        words = f"{theirs['base']} + {' + '.join(str(theirs[name]) for name in names)} ms"
        told.append(_claim(f"{phase}: base + {' + '.join(names)}", words, ours, "other machine"))
        if measured:
            rate = 100 * extra / measured
            close = abs(rate - theirs["overhead_pct"]) <= CLOSE
            verdict = f"{AGREES} (within {CLOSE:g} points)" if close else DIFFERS
            words = f"{theirs['overhead_pct']} %"
            told.append(_claim(f"{phase}: overhead of VPDR", words, f"{rate:.1f} %", verdict))
    return [each | ({"verdict": NOT_JUDGED} if summary["smoke"] else {}) for each in told]


def mean_claims(summary: Mapping[str, Any], headline: str, base: str) -> list[dict[str, Any]]:
    """The extra time over all frameworks: the paper gives its mean."""
    printed = paper_numbers()["time_ms_fedproto_office"]["six_framework_mean"]
    gaps = [pair for pair in summary["pairs"] if (pair["first"], pair["second"]) == (headline, base)]
    if not gaps:
        return []
    extra = sum(pair["ours"]["mean"] for pair in gaps) / len(gaps)
    bases = [_line_metric(line, "total_ms") for line in summary["lines"] if line["method"] == base]
    whole = [value for value in bases if value]
    rate = 100 * extra / (sum(whole) / len(whole))
    close = abs(rate - printed["pct"]) <= CLOSE
    verdict = f"{AGREES} (within {CLOSE:g} points)" if close else DIFFERS
    words = f"+{printed['total_s']} s ({printed['pct']} %)"
    ours = f"{extra / 1000:+.4f} s ({rate:.1f} %)"
    told = _claim(f"mean extra time of {method_label(headline)} over {len(gaps)} cells", words, ours, verdict)
    return [told | ({"verdict": NOT_JUDGED} if summary["smoke"] else {})]


def _claim(claim: str, paper: str, ours: str, verdict: str) -> dict[str, Any]:
    return {"claim": claim, "paper": paper, "ours": ours, "verdict": verdict}


def _metric(summary: Mapping[str, Any], method: str, metric: str) -> float | None:
    lines = [line for line in summary["lines"] if line["method"] == method]
    return _line_metric(lines[0], metric) if lines else None


def _line_metric(line: Mapping[str, Any], metric: str) -> float | None:
    found = line["metrics"].get(metric)
    return None if found is None else float(found["mean"])


@drawn
def bars(summary: Mapping[str, Any]) -> "Figure":
    """Stacked bars of both phases for each framework and method, a panel for each data set."""
    datasets = [name for name in summary["datasets"] if _measured(summary, name)]
    tallest = max((len(_measured(summary, name)) for name in datasets), default=1)
    figure, grid = canvas(max(1, len(datasets)), 1, (5.5 * max(1, len(datasets)), 1.3 + 0.26 * tallest))
    for axes, dataset in zip(grid.flat, datasets, strict=False):
        lines = _measured(summary, dataset)
        first, second = (
            [_line_metric(line, name) or 0.0 for line in lines] for name in ("protogen_ms", "finetune_ms")
        )
        axes.barh(range(len(lines)), first, color="#0072B2", label="ProtoGen")
        axes.barh(range(len(lines)), second, left=first, color="#E69F00", label="FT")
        names = [f"{framework_label(summary, line)} {method_label(line['method'])}" for line in lines]
        axes.set_yticks(range(len(lines)), names, fontsize=8)
        axes.invert_yaxis()
        axes.set(title=summary["datasets"][dataset]["title"], xlabel="ms of one client and round")
        axes.legend()
    figure.suptitle(heading(summary), fontsize=10)
    return figure


def _measured(summary: Mapping[str, Any], dataset: str) -> list[Mapping[str, Any]]:
    return [line for line in summary["lines"] if line["dataset"] == dataset and line["metrics"]]
