"""Attacks inside runs and afterwards: they see what was sent, and the run cannot tell."""

import json
import stat
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.engines.conftest import timeless, tiny
from vpdr.attacks import AttackOrder, order_from
from vpdr.engines.build import build
from vpdr.engines.overhear import Audience
from vpdr.engines.replay import attacked
from vpdr.engines.runner import Company, run_plan
from vpdr.engines.simulate import Hearing, simulate
from vpdr.errors import InvalidInput
from vpdr.plan import Plan
from vpdr.records.store import read_record
from vpdr.records.uploads import UploadFolder
from vpdr.types import Prototypes

BOTH = AttackOrder(kinds=("mia", "fsh"), stronger=True, steps=15)
ON_PATH = ("framework.kind=mpft", "release.encoder=transcript")
MEMBERS = AttackOrder(kinds=("mia",), stronger=True)


def run(plan: Plan, out: Path, order: AttackOrder | None = None, **company) -> dict:
    record = run_plan(plan, out, company=Company(attacks=order, **company)).record
    assert record is not None
    return record


@pytest.mark.parametrize(
    "settings",
    [(), ("mechanism.kind=vpp", "regulariser.kind=dcr"), ("framework.kind=fedplvm",), ON_PATH],
)
def test_a_watched_run_is_the_same_run(settings, tmp_path: Path) -> None:
    plan = tiny(*settings)
    plain, watched = run(plan, tmp_path / "a"), run(plan, tmp_path / "b", BOTH)
    found = watched.pop("attacks")
    assert timeless(plain) == timeless(watched)
    assert [each["round"] for each in found["mia"]["rounds"]] == [1, 2, 3]
    for metric in ("auc", "tpr_at_1fpr", "advantage", "f1"):
        assert {"mean", "std", "null", "corrected", "low", "high"} <= found["mia"]["summary"][metric].keys()
    for metric in ("cos", "cos_clean", "cffd", "top1"):
        assert {"mean", "std", "null", "corrected"} <= found["fsh"]["summary"][metric].keys()


def test_only_the_rounds_that_were_asked_for(tmp_path: Path) -> None:
    found = run(tiny(), tmp_path / "a", AttackOrder(kinds=("mia",), rounds=(2,)))["attacks"]["mia"]
    assert [each["round"] for each in found["rounds"]] == [2]
    assert found["stronger"] == {}
    with pytest.raises(InvalidInput, match=r"must lie in 1\.\.3, got 9"):
        run(tiny(), tmp_path / "b", AttackOrder(kinds=("mia",), rounds=(9,)))
    assert not (tmp_path / "b").exists()


def test_a_stopped_run_goes_on_with_its_attacks(tmp_path: Path) -> None:
    plan = tiny()
    whole = run(plan, tmp_path / "whole", BOTH)
    seen: list[int] = []
    company = Company(
        attacks=BOTH, watchers=[lambda course: seen.append(course.done)], stop=lambda: len(seen) == 2
    )
    assert run_plan(plan, tmp_path / "cut", company=company).record is None
    with pytest.raises(InvalidInput, match="resume with the same options"):
        run_plan(plan, tmp_path / "cut", resume=True)
    with pytest.raises(InvalidInput, match="was started with the attacks"):
        run_plan(plan, tmp_path / "cut", resume=True, company=Company(attacks=MEMBERS))
    resumed = run_plan(plan, tmp_path / "cut", resume=True, company=Company(attacks=BOTH)).record
    assert timeless(resumed) == timeless(whole)


def test_a_client_that_joins_late_or_misses_a_round_is_attacked_when_it_sends(tmp_path: Path) -> None:
    plan = tiny('participation.schedule={"client-000" = [1, 3], "client-002" = [2]}')
    rounds = run(plan, tmp_path / "a", MEMBERS)["attacks"]["mia"]["rounds"]
    assert [sorted(each["clients"]) for each in rounds] == [["client-000"], ["client-002"], ["client-000"]]


def test_a_run_without_uploads_has_nothing_to_attack(tmp_path: Path) -> None:
    found = run(tiny("framework.kind=local"), tmp_path / "a", BOTH)["attacks"]
    assert found["mia"]["rounds"] == found["fsh"]["rounds"] == []
    assert found["mia"]["summary"] == found["fsh"]["summary"] == {}


def test_the_same_upload_again_adds_nothing(tmp_path: Path) -> None:
    plan = tiny("release.count=1", "release.encoder=public", "mechanism.kind=none", "run.rounds=4")
    found = run(plan, tmp_path / "a", MEMBERS)["attacks"]["mia"]["stronger"]
    once, total = (found[name]["summary"]["auc"]["mean"] for name in ("likelihood", "accumulated"))
    assert once == pytest.approx(total)


@pytest.mark.parametrize("noise", ["seeded", "system"])
def test_a_run_can_be_attacked_afterwards_from_its_uploads(noise, tmp_path: Path) -> None:
    plan = tiny(f"release.noise={noise}")
    inside = run(plan, tmp_path / "a", BOTH)["attacks"]
    before = sorted(path.read_bytes() for path in (tmp_path / "a" / "ledgers").iterdir())
    after = attacked(plan, tmp_path / "a", BOTH, lambda *_: None, Audience())
    assert timeless(inside) == timeless(after)
    assert before == sorted(path.read_bytes() for path in (tmp_path / "a" / "ledgers").iterdir())


def test_uploads_are_what_the_server_saw_and_their_owners_only(tmp_path: Path) -> None:
    plan = tiny()
    run(plan, tmp_path / "a")
    folder = UploadFolder(tmp_path / "a")
    assert folder.rounds() == (1, 2, 3)
    sent = []
    simulate(build(plan), hearing=Hearing(listeners=[lambda moment: sent.append(moment.uploads)]))
    for t, uploads in enumerate(sent, start=1):
        stored = folder.heard(t)
        assert list(stored) == list(uploads)
        for name, upload in uploads.items():
            assert torch.equal(stored[name].vectors, upload.vectors)
            assert torch.equal(stored[name].labels, upload.labels)
    mode = stat.S_IMODE((tmp_path / "a" / "uploads" / "round-0001.npz").stat().st_mode)
    assert mode == 0o600
    run(plan, tmp_path / "b", keep_uploads=False)
    assert not (tmp_path / "b" / "uploads").exists()


def test_uploads_that_do_not_fit_the_plan_are_refused(tmp_path: Path) -> None:
    plan = tiny()
    run(plan, tmp_path / "a")
    folder = UploadFolder(tmp_path / "a")
    heard = folder.heard(2)
    moved = {name: type(each)(each.vectors + 1, each.labels) for name, each in heard.items()}
    folder.keep(2, moved)
    with pytest.raises(InvalidInput, match="does not give what client-000 sent in round 2"):
        attacked(plan, tmp_path / "a", MEMBERS, lambda *_: None, Audience())
    run(tiny("release.noise=system"), tmp_path / "b", keep_uploads=False)
    with pytest.raises(InvalidInput, match="cannot be drawn again"):
        attacked(tiny("release.noise=system"), tmp_path / "b", MEMBERS, lambda *_: None, Audience())


def test_an_upload_that_was_paid_for_is_never_written_over(tmp_path: Path) -> None:
    """A crash makes a round happen again; with real noise both uploads are out and both were paid for."""
    plan, out = tiny("release.noise=system"), tmp_path / "a"
    with pytest.raises(ZeroDivisionError):
        run_plan(plan, out, company=Company(watchers=[lambda _: 1 / 0], checkpoint_seconds=1e9))
    folder = UploadFolder(out)
    lost = folder.heard(1)
    run_plan(plan, out, resume=True)
    names = sorted(path.name for path in folder.path.iterdir())
    assert names == ["round-0001-again-1.npz", "round-0001.npz", "round-0002.npz", "round-0003.npz"]
    assert folder.rounds() == (1, 2, 3)
    first, second = folder.attempts(1)
    for name, upload in lost.items():
        assert torch.equal(first[name].vectors, upload.vectors)
        assert not torch.equal(second[name].vectors, upload.vectors)
        assert torch.equal(folder.heard(1)[name].vectors, second[name].vectors)  # what was answered
    assert attacked(plan, out, MEMBERS, lambda *_: None, Audience())["mia"]


def test_the_same_upload_written_again_is_one_upload(tmp_path: Path) -> None:
    folder = UploadFolder(tmp_path)
    upload = {"a": Prototypes(torch.ones(2, 3), torch.arange(2))}
    for _ in range(3):
        folder.keep(12, upload)
    assert [path.name for path in folder.path.iterdir()] == ["round-0012.npz"]
    for number in range(1, 12):
        folder.keep(12, {"a": Prototypes(torch.full((2, 3), float(number)), torch.arange(2))})
    assert [float(each["a"].vectors[0, 0]) for each in folder.attempts(12)] == list(range(1, 12))
    assert float(folder.heard(12)["a"].vectors[0, 0]) == 11


def test_a_finished_run_gets_the_attacks_that_it_lacks(tmp_path: Path) -> None:
    plan = tiny()
    run(plan, tmp_path / "a")
    done = run_plan(plan, tmp_path / "a", resume=True, company=Company(attacks=BOTH)).record
    assert done is not None
    assert set(done["attacks"]) == {"mia", "fsh"}
    assert read_record(tmp_path / "a" / "record.json")["attacks"].keys() == done["attacks"].keys()
    assert timeless(run(plan, tmp_path / "b", BOTH)) == timeless(done)


def test_noise_on_small_clients_leaves_reconstructions_at_chance(tmp_path: Path) -> None:
    sizes = ("benchmark.clients=3", "benchmark.classes=10", "benchmark.samples=80", "model.dim=32")
    order = AttackOrder(kinds=("fsh",), rounds=(1,), steps=700)
    hits = {}
    for mechanism, rounds in (("none", 1), ("igpp", 20)):
        plan = tiny(*sizes, f"run.rounds={rounds}", f"mechanism.kind={mechanism}", "train.batch=256")
        hits[mechanism] = run(plan, tmp_path / mechanism, order)["attacks"]["fsh"]["summary"]
    assert hits["none"]["top1"]["mean"] == 1
    assert hits["none"]["cos"]["mean"] > 0.99
    assert hits["igpp"]["top1"]["mean"] < 0.3
    assert hits["igpp"]["cos_clean"]["mean"] < 0.5
    assert hits["igpp"]["top1"]["null"] == pytest.approx(0.1)


def test_the_initial_encoder_is_what_everybody_has(tmp_path: Path) -> None:
    plan = tiny("mechanism.kind=none", "train.lr=0.05", "run.rounds=3")
    strong, weak = (
        run(plan, tmp_path / phi, AttackOrder(kinds=("fsh", "mia"), rounds=(3,), phi=phi, steps=400))[
            "attacks"
        ]
        for phi in ("client", "initial")
    )
    assert strong["fsh"]["summary"]["cos_clean"]["mean"] > weak["fsh"]["summary"]["cos_clean"]["mean"]
    assert weak["mia"]["phi"] == "initial"
    assert weak["mia"]["summary"]["auc"] != strong["mia"]["summary"]["auc"]


def test_reconstructions_are_kept(tmp_path: Path) -> None:
    run(tiny("run.rounds=1"), tmp_path / "a", BOTH)
    with np.load(tmp_path / "a" / "attacks" / "fsh-round-0001-client-000.npz") as stored:
        assert stored["inputs"].shape == (4, 12)
        assert stored["labels"].tolist() == [0, 1, 2, 3]


def test_the_cost_is_told_before_it_is_paid(tmp_path: Path) -> None:
    lines: list[str] = []
    done: list[tuple[str, int, int]] = []
    audience = Audience(tell=lines.append, progress=lambda *step: done.append(step))
    run(tiny(), tmp_path / "a", AttackOrder(kinds=("fsh",), rounds=(1, 2), steps=5), audience=audience)
    assert len(lines) == 1
    assert "12 targets a round, at most 5 steps, 2 rounds" in lines[0]
    assert ("reconstructions of round 2", 3, 3) in done


@pytest.mark.parametrize(
    ("kinds", "rounds", "details", "words"),
    [
        ("mia,magic", None, {}, "attacks must be among mia, fsh, got 'mia,magic'"),
        ("", None, {}, "attacks must be among"),
        ("mia", "1,x", {}, "whole numbers such as 1,5,20, got '1,x'"),
        ("mia", "0", {}, "count from 1"),
        ("mia", None, {"phi": "all"}, "phi must be one of client, initial"),
        ("fsh", None, {"steps": 0}, "steps must be at least 1"),
    ],
)
def test_orders_that_cannot_be(kinds, rounds, details, words) -> None:
    with pytest.raises(InvalidInput, match=words):
        order_from(kinds, rounds, **details)


def test_a_record_with_attacks_is_plain_json(tmp_path: Path) -> None:
    run(tiny(), tmp_path / "a", BOTH)
    content = json.loads((tmp_path / "a" / "record.json").read_text())
    assert content["attacks"]["fsh"]["space"] == "embeddings"
    assert len(content["attacks"]["mia"]["roc"]) == 101
