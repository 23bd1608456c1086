"""Same seed, same record: what a run computes is compared with a stored digest.

The digest covers rounds, final accuracies, the privacy statement and the ledgers. No time of day is in them: a
ledger in memory has no clock.

`stored_records.json` holds, for each case, the digest of the record and its final accuracy. On the kind of
machine on which they were computed (torch version, vector instructions) records must be equal bit for bit;
elsewhere sums are rounded otherwise, and the accuracy must agree to a few samples.

After an intended change of results: `python -m tests.integration.test_unchanged_records` writes the file anew.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.federation.conftest import TINY_BASELINE
from vpdr.config import ExperimentOptions, load_experiment
from vpdr.federation import build, simulate
from vpdr.records import finished_record

STORED = Path(__file__).with_name("stored_records.json")
# Named here and not taken from the registries: a case that disappears must be noticed.
FRAMEWORKS = ("local", "fedproto", "fedpcl", "fpl", "fedplvm", "fedtgp", "mpft")
METHODS = {
    "none": ("paper", "mechanism.kind=none"),
    "igpp": ("paper", "mechanism.kind=igpp"),
    "vpp": ("paper", "mechanism.kind=vpp"),
    "vpdr": ("paper", "mechanism.kind=vpp", "regulariser.kind=dcr"),
    "authors": ("authors", "mechanism.kind=vpp", "regulariser.kind=dcr"),
    "strict": ("strict",),
    "strict, two prototypes a class": ("strict", "mechanism.per_class=2"),
}
CASES = {
    f"{framework}/{name}": (source, f"framework.kind={framework}", *settings)
    for framework in FRAMEWORKS
    for name, (source, *settings) in METHODS.items()
} | {
    "fedproto/dpsgd": ("paper", "train.privacy=dpsgd", "release.encoder=personal"),
    "mpft/broadcast features": ("paper", "framework.kind=mpft", "release.encoder=transcript"),
    "fedproto/random selection": ("paper", "mechanism.kind=vpp", "mechanism.selection=random"),
    "fedproto/half of the clients": ("paper", "participation.fraction=0.5", "participation.dropout=0.2"),
}


def machine() -> str:
    """What decides how sums are rounded."""
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"


def compute(case: str) -> dict[str, Any]:
    """The digest and the final accuracy of one small run."""
    source, *settings = CASES[case]
    options = ExperimentOptions(assumed=(*TINY_BASELINE, *settings))
    config = load_experiment(source, options).method_configs[0].config
    federation = build(config)
    rounds = simulate(federation).round_records
    record = finished_record(config, rounds, [client.ledger for client in federation.clients], 0.0)
    fields = asdict(record)
    assert fields["privacy"].pop("dataset") == "the training rows after the split"  # not in the stored digests
    content = {key: without_clocks(fields[key]) for key in ("identity", "rounds", "final", "privacy", "ledgers")}
    text = json.dumps(content, sort_keys=True)
    return {"digest": hashlib.sha256(text.encode()).hexdigest(), "accuracy": record.final["own"]["head"].average}


def without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_clocks(inner) for key, inner in value.items() if key != "seconds"}
    return [without_clocks(inner) for inner in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("case", CASES)
def test_the_record_is_the_one_that_was_stored(case: str) -> None:
    stored = json.loads(STORED.read_text())
    computed = compute(case)
    if machine() == stored["machine"]:
        assert computed == stored["cases"][case]
    else:
        assert computed["accuracy"] == pytest.approx(stored["cases"][case]["accuracy"], abs=0.1)


if __name__ == "__main__":
    STORED.write_text(
        json.dumps({"machine": machine(), "cases": {case: compute(case) for case in CASES}}, indent=1) + "\n"
    )
