"""Attacks during runs and afterwards: they see the uploads, and do not change the run."""

import json
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit.federation.conftest import timeless, tiny
from tests.unit.records.upload_cases import load_attempts
from vpdr.attacks import (
    ATTACKS,
    AttackCallbacks,
    AttackConfig,
    AttackContext,
    AttackFactory,
    attack_finished_run,
    parse_attack_config,
)
from vpdr.config import RunConfig
from vpdr.federation import Callbacks, RoundUploads, RunOptions, build, run_federation, simulate
from vpdr.io import json_safe
from vpdr.records import AttackMetric, AttackResult, RunRecord, UploadStore, read_record
from vpdr.report.html import run_page
from vpdr.types import Prototypes
from vpdr.validation import InvalidInput

BOTH = AttackConfig(kinds=("mia", "fsh"), likelihood_ratio=True, steps=15)
BROADCAST = ("framework.kind=mpft", "release.encoder=broadcast")
MEMBERSHIP = AttackConfig(kinds=("mia",), likelihood_ratio=True)


def run(
    config: RunConfig,
    out: Path,
    attack_config: AttackConfig | None = None,
    callbacks: AttackCallbacks | None = None,
    **options,
) -> RunRecord:
    observers = () if attack_config is None else (AttackFactory(attack_config, callbacks or AttackCallbacks()),)
    record = run_federation(config, out, options=RunOptions(observers=observers, **options)).record
    assert record is not None
    return record


@pytest.mark.parametrize(
    "settings", [(), ("mechanism.kind=vpp", "regulariser.kind=dcr"), ("framework.kind=fedplvm",), BROADCAST]
)
def test_attacks_do_not_change_the_run(settings, tmp_path: Path) -> None:
    config = tiny(*settings)
    without, attacked = run(config, tmp_path / "a"), run(config, tmp_path / "b", BOTH)
    result = attacked.attacks
    assert timeless(without) == timeless(replace(attacked, attacks=None))
    assert [entry.round for entry in result["mia"].rounds] == [1, 2, 3]
    for metric in ("auc", "tpr_at_1fpr", "advantage", "f1"):
        assert None not in (result["mia"].summary[metric].low, result["mia"].summary[metric].high)
    for metric in ("cos", "cos_clean", "cffd", "top1"):
        assert json_safe(result["fsh"].summary[metric]).keys() == {"mean", "std", "null", "corrected"}


def test_only_the_configured_rounds_are_attacked(tmp_path: Path) -> None:
    result = run(tiny(), tmp_path / "a", AttackConfig(kinds=("mia",), rounds=(2,))).attacks["mia"]
    assert [entry.round for entry in result.rounds] == [2]
    assert result.stronger == {}
    with pytest.raises(InvalidInput, match=r"must lie in 1\.\.3, got 9"):
        run(tiny(), tmp_path / "b", AttackConfig(kinds=("mia",), rounds=(9,)))
    assert not (tmp_path / "b").exists()


def test_a_stopped_run_resumes_with_its_attacks(tmp_path: Path) -> None:
    config = tiny()
    whole = run(config, tmp_path / "whole", BOTH)
    rounds: list[int] = []
    options = RunOptions(
        observers=[AttackFactory(BOTH)],
        on_round_end=[lambda state: rounds.append(state.rounds_done)],
        stop=lambda: len(rounds) == 2,
    )
    assert run_federation(config, tmp_path / "cut", options=options).record is None
    with pytest.raises(InvalidInput, match="resume with the same options"):
        run_federation(config, tmp_path / "cut", resume=True)
    with pytest.raises(InvalidInput, match="was started with the attacks"):
        run_federation(config, tmp_path / "cut", resume=True, options=RunOptions(observers=[AttackFactory(MEMBERSHIP)]))
    attacked = RunOptions(observers=[AttackFactory(BOTH)])
    resumed = run_federation(config, tmp_path / "cut", resume=True, options=attacked).record
    assert timeless(resumed) == timeless(whole)


def test_a_client_that_joins_late_or_misses_a_round_is_attacked_when_it_sends(tmp_path: Path) -> None:
    config = tiny('participation.schedule={"client-000" = [1, 3], "client-002" = [2]}')
    rounds = run(config, tmp_path / "a", MEMBERSHIP).attacks["mia"].rounds
    assert [sorted(each.clients) for each in rounds] == [["client-000"], ["client-002"], ["client-000"]]


def test_a_run_without_uploads_has_nothing_to_attack(tmp_path: Path) -> None:
    result = run(tiny("framework.kind=local"), tmp_path / "a", BOTH).attacks
    assert result["mia"].rounds == result["fsh"].rounds == ()
    assert result["mia"].summary == result["fsh"].summary == {}


def test_the_same_upload_again_adds_nothing(tmp_path: Path) -> None:
    config = tiny("release.count=1", "release.encoder=public", "mechanism.kind=none", "run.rounds=4")
    result = run(config, tmp_path / "a", MEMBERSHIP).attacks["mia"].stronger
    once, total = (result[name].summary["auc"].mean for name in ("likelihood", "accumulated"))
    assert once == pytest.approx(total)


@pytest.mark.parametrize("noise", ["seeded", "system"])
def test_a_run_can_be_attacked_afterwards_from_its_uploads(noise, tmp_path: Path) -> None:
    config = tiny(f"release.noise={noise}")
    during = run(config, tmp_path / "a", BOTH).attacks
    before = sorted(path.read_bytes() for path in (tmp_path / "a" / "ledgers").iterdir())
    after = attack_finished_run(config, tmp_path / "a", BOTH, lambda *_: None, AttackCallbacks())
    assert timeless(during) == timeless(after)
    assert before == sorted(path.read_bytes() for path in (tmp_path / "a" / "ledgers").iterdir())


def test_stored_uploads_are_those_of_the_run_and_private(tmp_path: Path) -> None:
    config = tiny()
    run(config, tmp_path / "a")
    store = UploadStore(tmp_path / "a")
    assert store.rounds() == (1, 2, 3)
    uploads_by_round = []
    simulate(
        build(config),
        callbacks=Callbacks(on_uploads=[lambda round_uploads: uploads_by_round.append(round_uploads.uploads)]),
    )
    for round, uploads in enumerate(uploads_by_round, start=1):
        stored = store.load(round)
        assert list(stored) == list(uploads)
        for name, upload in uploads.items():
            assert torch.equal(stored[name].vectors, upload.vectors)
            assert torch.equal(stored[name].labels, upload.labels)
    mode = stat.S_IMODE((tmp_path / "a" / "uploads" / "round-0001.npz").stat().st_mode)
    assert mode == 0o600
    run(config, tmp_path / "b", keep_uploads=False)
    assert not (tmp_path / "b" / "uploads").exists()


def test_uploads_that_do_not_fit_the_config_are_refused(tmp_path: Path) -> None:
    config = tiny()
    run(config, tmp_path / "a")
    store = UploadStore(tmp_path / "a")
    uploads = store.load(2)
    shifted = {name: type(each)(each.vectors + 1, each.labels) for name, each in uploads.items()}
    store.save(2, shifted)
    with pytest.raises(InvalidInput, match="does not give what client-000 sent in round 2"):
        attack_finished_run(config, tmp_path / "a", MEMBERSHIP, lambda *_: None, AttackCallbacks())
    run(tiny("release.noise=system"), tmp_path / "b", keep_uploads=False)
    with pytest.raises(InvalidInput, match="cannot be drawn again"):
        attack_finished_run(
            tiny("release.noise=system"), tmp_path / "b", MEMBERSHIP, lambda *_: None, AttackCallbacks()
        )


def test_a_charged_upload_is_never_overwritten(tmp_path: Path) -> None:
    """A crash makes a round happen again; with real noise both uploads were sent and charged."""
    config, out = tiny("release.noise=system"), tmp_path / "a"
    with pytest.raises(ZeroDivisionError):
        run_federation(config, out, options=RunOptions(on_round_end=[lambda _: 1 / 0], checkpoint_seconds=1e9))
    store = UploadStore(out)
    lost = store.load(1)
    run_federation(config, out, resume=True)
    names = sorted(path.name for path in store.path.iterdir())
    assert names == ["round-0001-again-1.npz", "round-0001.npz", "round-0002.npz", "round-0003.npz"]
    assert store.rounds() == (1, 2, 3)
    first, second = load_attempts(store, 1)
    for name, upload in lost.items():
        assert torch.equal(first[name].vectors, upload.vectors)
        assert not torch.equal(second[name].vectors, upload.vectors)
        assert torch.equal(store.load(1)[name].vectors, second[name].vectors)  # what was answered
    assert attack_finished_run(config, out, MEMBERSHIP, lambda *_: None, AttackCallbacks())["mia"]


def test_the_same_upload_written_again_is_one_upload(tmp_path: Path) -> None:
    store = UploadStore(tmp_path)
    upload = {"a": Prototypes(torch.ones(2, 3), torch.arange(2))}
    for _ in range(3):
        store.save(12, upload)
    assert [path.name for path in store.path.iterdir()] == ["round-0012.npz"]
    for number in range(1, 12):
        store.save(12, {"a": Prototypes(torch.full((2, 3), float(number)), torch.arange(2))})
    assert [float(each["a"].vectors[0, 0]) for each in load_attempts(store, 12)] == list(range(1, 12))
    assert float(store.load(12)["a"].vectors[0, 0]) == 11


def test_missing_attacks_are_added_to_a_finished_run(tmp_path: Path) -> None:
    config = tiny()
    run(config, tmp_path / "a")
    attacked = RunOptions(observers=[AttackFactory(BOTH)])
    record = run_federation(config, tmp_path / "a", resume=True, options=attacked).record
    assert record is not None
    assert set(record.attacks) == {"mia", "fsh"}
    assert read_record(tmp_path / "a" / "record.json").attacks.keys() == record.attacks.keys()
    assert timeless(run(config, tmp_path / "b", BOTH)) == timeless(record)


def test_noise_on_small_clients_leaves_reconstructions_at_chance(tmp_path: Path) -> None:
    sizes = ("benchmark.clients=3", "benchmark.classes=10", "benchmark.samples=80", "model.dim=32")
    attack_config = AttackConfig(kinds=("fsh",), rounds=(1,), steps=700)
    summaries = {}
    for mechanism, rounds in (("none", 1), ("igpp", 20)):
        config = tiny(*sizes, f"run.rounds={rounds}", f"mechanism.kind={mechanism}", "train.batch=256")
        summaries[mechanism] = run(config, tmp_path / mechanism, attack_config).attacks["fsh"].summary
    assert summaries["none"]["top1"].mean == 1
    assert summaries["none"]["cos"].mean > 0.99
    assert summaries["igpp"]["top1"].mean < 0.3
    assert summaries["igpp"]["cos_clean"].mean < 0.5
    assert summaries["igpp"]["top1"].null == pytest.approx(0.1)


def test_the_initial_encoder_is_a_weaker_adversary(tmp_path: Path) -> None:
    config = tiny("mechanism.kind=none", "train.lr=0.05", "run.rounds=3")
    strong, weak = (
        run(
            config,
            tmp_path / encoder,
            AttackConfig(kinds=("fsh", "mia"), rounds=(3,), adversary_encoder=encoder, steps=400),
        ).attacks
        for encoder in ("client", "initial")
    )
    assert strong["fsh"].summary["cos_clean"].mean > weak["fsh"].summary["cos_clean"].mean
    assert weak["mia"].phi == "initial"
    assert weak["mia"].summary["auc"] != strong["mia"].summary["auc"]


def test_reconstructions_are_saved(tmp_path: Path) -> None:
    run(tiny("run.rounds=1"), tmp_path / "a", BOTH)
    with np.load(tmp_path / "a" / "attacks" / "fsh-round-0001-client-000.npz") as stored:
        assert stored["inputs"].shape == (4, 12)
        assert stored["labels"].tolist() == [0, 1, 2, 3]


def test_the_cost_is_reported_first(tmp_path: Path) -> None:
    lines: list[str] = []
    done: list[tuple[str, int, int]] = []
    callbacks = AttackCallbacks(on_message=lines.append, progress=lambda *step: done.append(step))
    run(tiny(), tmp_path / "a", AttackConfig(kinds=("fsh",), rounds=(1, 2), steps=5), callbacks=callbacks)
    assert len(lines) == 1
    assert "12 targets a round, at most 5 steps, 2 rounds" in lines[0]
    assert ("reconstructions of round 2", 3, 3) in done


@pytest.mark.parametrize(
    ("kinds", "rounds", "options", "message"),
    [
        ("mia,magic", None, {}, "attacks must be among mia, fsh, got 'mia,magic'"),
        ("", None, {}, "attacks must be among"),
        ("mia", "1,x", {}, "whole numbers such as 1,5,20, got '1,x'"),
        ("mia", "0", {}, "count from 1"),
        ("mia", None, {"adversary_encoder": "all"}, "phi must be one of client, initial"),
        ("fsh", None, {"steps": 0}, "steps must be at least 1"),
    ],
)
def test_invalid_attack_configs(kinds, rounds, options, message) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_attack_config(kinds, rounds, **options)


def test_a_record_with_attacks_is_plain_json(tmp_path: Path) -> None:
    run(tiny(), tmp_path / "a", BOTH)
    content = json.loads((tmp_path / "a" / "record.json").read_text())
    assert content["attacks"]["fsh"]["space"] == "embeddings"
    assert len(content["attacks"]["mia"]["roc"]) == 101


class CountingAttack:
    """A plug-in that counts uploads."""

    def __init__(self, context: AttackContext) -> None:
        self.uploads = 0

    def observe(self, round_uploads: RoundUploads) -> None:
        self.uploads += len(round_uploads.uploads)

    def state_dict(self) -> dict:
        return {"uploads": self.uploads}

    def load_state_dict(self, state: Mapping) -> None:
        self.uploads = state["uploads"]

    def result(self) -> AttackResult:
        count = AttackMetric(mean=self.uploads, std=0.0, null=0.0, corrected=self.uploads)
        return AttackResult(phi="client", rounds=(), summary={"uploads": count}, seconds=0.0)


def test_a_registered_attack_runs(tmp_path: Path) -> None:
    ATTACKS.register("count", CountingAttack)
    try:
        record = run(tiny(), tmp_path / "a", parse_attack_config("count,mia", "1,3"))
    finally:
        ATTACKS.unregister("count")
    assert record.attacks is not None
    assert record.attacks["count"].summary["uploads"].mean == 6
    assert len(record.attacks["mia"].rounds) == 2
    assert '<th scope="row">uploads</th><td>6.000</td>' in run_page(record)
