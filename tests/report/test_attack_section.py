"""What attacks found, on the page."""

from tests.report.report_cases import record
from vpdr.report.attack_section import attack_section

METRIC = {"mean": 0.61, "std": 0.01, "null": 0.5, "corrected": 0.11, "low": 0.05, "high": 0.17}
FOUND = {
    "fsh": {
        "phi": "initial",
        "rounds": [{"round": 2}],
        "summary": {"top1": {"mean": 0.2, "std": 0.0, "null": 0.1, "corrected": None}},
    },
    "mia": {
        "phi": "client",
        "rounds": [{"round": 1}, {"round": 2}],
        "summary": {"auc": METRIC, "tpr_at_1fpr": {**METRIC, "note": "too few <here>"}},
        "pooled": {},
        "roc": [0.0, 0.7, 1.0],
        "stronger": {"likelihood": {"summary": {"auc": METRIC}, "roc": [0.0, 0.8, 1.0]}},
    },
}


def test_nothing_attacked_nothing_said() -> None:
    assert attack_section(record(0, 0.5), []) == ""


def test_tables_curves_and_pictures() -> None:
    page = attack_section({**record(0, 0.5), "attacks": FOUND}, [b"one", b"two"])
    assert "0.050 to 0.170" in page
    assert "ROC-AUC (likelihood)" in page
    assert "too few &lt;here&gt;." in page
    assert "data:image/png;base64,dHdv" in page
    assert "what a server has" in page
    assert page.count("<svg") == 1
