"""The section on attacks in the page of a run."""

from dataclasses import replace

from tests.unit.report.report_cases import record
from vpdr.io import from_json
from vpdr.records import AttackResult
from vpdr.report.html import run_page

METRIC = {"mean": 0.61, "std": 0.01, "null": 0.5, "corrected": 0.11, "low": 0.05, "high": 0.17}
ATTACKS = {
    "fsh": {
        "phi": "initial",
        "rounds": [{"round": 2, "mean": {}, "clients": {}}],
        "summary": {"top1": {"mean": 0.2, "std": 0.0, "null": 0.1, "corrected": None}},
        "seconds": 1.0,
    },
    "mia": {
        "phi": "client",
        "rounds": [{"round": 1, "mean": {}, "clients": {}}, {"round": 2, "mean": {}, "clients": {}}],
        "summary": {"auc": METRIC, "tpr_at_1fpr": {**METRIC, "note": "too few <here>"}},
        "pooled": {},
        "roc": [0.0, 0.7, 1.0],
        "stronger": {"likelihood": {"summary": {"auc": METRIC}, "pooled": {}, "roc": [0.0, 0.8, 1.0]}},
        "seconds": 1.0,
    },
}


def test_without_attacks_there_is_no_section() -> None:
    assert "attacks" not in run_page(record(0, 0.5))


def test_tables_curves_and_reconstructions() -> None:
    attacks = {kind: from_json(AttackResult, result, kind) for kind, result in ATTACKS.items()}
    page = run_page(replace(record(0, 0.5), attacks=attacks), [b"one", b"two"])
    assert '<a href="#attacks">' in page
    section = page.split('<section id="attacks">')[1].split("</section>")[0]
    assert "0.050 to 0.170" in section
    assert "ROC-AUC (likelihood)" in section
    assert "too few &lt;here&gt;." in section
    assert "data:image/png;base64,dHdv" in section
    assert "what a server has" in section
    assert section.count("<svg") == 1
