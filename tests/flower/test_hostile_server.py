"""Whatever a server sends, a client gives no more than its owner allows, and says no in one word."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.flower.conftest import RUN, one_home, opening, paid, tiny, with_features
from vpdr.flower.client_app import client_app
from vpdr.flower.errand import Errand
from vpdr.flower.grid import InProcessGrid
from vpdr.flower.home import Home
from vpdr.flower.refusals import Code
from vpdr.flower.wire import errand_record, greeting_record, read_answer, unpacked

BAD = {
    "epsilon 100": (opening(tiny("budget.epsilon=100")), "epsilon"),
    "no mechanism": (opening(tiny("mechanism.kind=none")), "mechanism"),
    "a thousand rounds": (opening(tiny("run.rounds=1000")), "rounds"),
    "a thousandth round": (opening(tiny(), hop=1000), "bad-request"),
    "a round zero": (opening(tiny(), hop=0), "bad-request"),
    "a path for a name": (opening(tiny(), run="../../../../x"), "bad-request"),
}


def reply_to(home: Home, content, kind: str = "train"):
    from flwr.app import Message

    grid = InProcessGrid(client_app(), [home.path])
    (reply,) = grid.send_and_receive([Message(content, 2, kind)])
    return reply


def refusal(reply) -> str:
    """The code, after making sure that there is nothing else in the reply."""
    assert not reply.has_content()
    assert reply.error.reason in list(Code)
    return reply.error.reason


@pytest.mark.parametrize("case", BAD, ids=str)
def test_a_greedy_server_gets_a_code(tmp_path: Path, case: str) -> None:
    home = one_home(tmp_path, tiny())
    errand, code = BAD[case]
    assert refusal(reply_to(home, errand_record(errand))) == code
    assert paid(home) == 0
    assert not (home.path / "runs").exists()
    assert code in (home.path / "refusals.log").read_text()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_broadcast_of_nans_is_refused(tmp_path: Path, value: float) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    assert not reply_to(home, errand_record(opening(plan))).has_error()
    before = (home.path / "runs" / f"{RUN}.pt").read_bytes()
    broadcast = {"global.vectors": torch.full((4, 12), value), "global.labels": torch.arange(4)}
    errand = opening(plan, hop=2, learn=True, broadcast=broadcast)
    assert refusal(reply_to(home, errand_record(errand))) == "broadcast"
    assert paid(home) == 1
    assert (home.path / "runs" / f"{RUN}.pt").read_bytes() == before


def huge(framework: str) -> dict[str, torch.Tensor]:
    """Finite, and of the right shapes."""
    if framework == "fedproto":
        return {"global.vectors": torch.full((4, 12), 1e30), "global.labels": torch.arange(4)}
    shapes = {"down": (1, 12), "up": (12, 1), "hidden.weight": (8, 12), "hidden.bias": (8,)}
    shapes |= {"out.weight": (4, 8), "out.bias": (4,)}
    return {name: torch.full(shape, 1e38) for name, shape in shapes.items()}


@pytest.mark.parametrize("framework", ["fedproto", "mpft"])
def test_a_broadcast_that_would_break_the_model_changes_nothing(tmp_path: Path, framework: str) -> None:
    plan = tiny(f"framework.kind={framework}")
    home = one_home(tmp_path, plan)
    reply_to(home, errand_record(opening(plan)))
    before = (home.path / "runs" / f"{RUN}.pt").read_bytes()
    broadcast = huge(framework)
    errand = opening(plan, hop=2, learn=True, broadcast=broadcast)
    assert refusal(reply_to(home, errand_record(errand))) == "broadcast"
    assert paid(home) == 1
    assert (home.path / "runs" / f"{RUN}.pt").read_bytes() == before


@pytest.mark.parametrize(
    "broadcast",
    [
        {},
        {"global.vectors": torch.zeros(4, 3), "global.labels": torch.arange(4)},
        {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4) + 7},
        {"global.vectors": torch.zeros(4, 12), "global.labels": -torch.arange(4)},
        {"global.vectors": torch.zeros(3, 12), "global.labels": torch.arange(4)},
    ],
    ids=["nothing", "dimension", "classes", "negative", "lengths"],
)
def test_a_broadcast_that_does_not_fit_is_refused(tmp_path: Path, broadcast) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    errand = opening(plan, hop=2, learn=True, broadcast=broadcast)
    assert refusal(reply_to(home, errand_record(errand))) == "broadcast"
    assert paid(home) == 0


def teacher(trust: int = 4, classes: int = 4, dim: int = 12) -> dict[str, torch.Tensor]:
    shapes = {"down": (1, dim), "up": (dim, 1), "hidden.weight": (8, dim), "hidden.bias": (8,)}
    shapes |= {"out.weight": (classes, 8), "out.bias": (classes,), "trust": (trust,)}
    return {name: torch.zeros(shape) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    "broadcast",
    [
        {"down": torch.zeros(2, 2)},
        {name: array for name, array in teacher().items() if name != "up"},
        {**teacher(), "more": torch.zeros(1)},
        teacher(trust=3),
        teacher(trust=3, classes=3),
        teacher(trust=5),
        teacher(dim=11),
    ],
    ids=["one", "a part", "more", "short trust", "fewer classes", "long trust", "dimension"],
)
def test_a_teacher_that_does_not_fit_is_refused_before_data_are_touched(
    tmp_path: Path, monkeypatch, broadcast
) -> None:
    plan = tiny("framework.kind=mpft")
    home = one_home(tmp_path, plan)
    monkeypatch.setattr("vpdr.client.Client.finetune", lambda *_: pytest.fail("data were touched"))
    errand = opening(plan, hop=2, learn=True, broadcast=broadcast)
    assert refusal(reply_to(home, errand_record(errand))) == "broadcast"
    assert paid(home) == 0


@pytest.mark.parametrize("size", [0.0, 1e15])
def test_a_steep_path_fails_on_no_sample(tmp_path: Path, size: float) -> None:
    """Were features on the path allowed to overflow, silence would tell whether a sample is that large."""
    plan = tiny("framework.kind=mpft", "release.encoder=transcript")
    home = with_features(tmp_path, plan)
    found = dict(np.load(tmp_path / "silo.npz"))
    found["train_x"][0] = size
    np.savez(tmp_path / "silo.npz", **found)
    steep = {**teacher(), "down": torch.full((1, 12), 1e18), "up": torch.full((12, 1), 1e18)}
    reply = reply_to(home, errand_record(opening(plan, hop=2, learn=True, broadcast=steep)))
    upload = read_answer(reply).upload
    assert upload.on_path
    assert upload.vectors.isfinite().all()
    assert paid(home) == 1


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 1, 2, 3]], ids=["lacks a class", "has all"])
def test_a_broadcast_does_not_ask_whether_a_class_is_there(tmp_path: Path, labels: list[int]) -> None:
    plan = tiny("framework.kind=mpft")
    home = with_features(tmp_path, plan, labels)
    errand = opening(plan, hop=2, learn=True, broadcast=teacher(trust=3))
    assert refusal(reply_to(home, errand_record(errand))) == "broadcast"
    assert not reply_to(
        home, errand_record(opening(plan, hop=2, learn=True, broadcast=teacher()))
    ).has_error()


@pytest.mark.parametrize("place", ["vpdr.client.Client.finetune", "vpdr.engines.simulate.accuracy"])
def test_an_error_in_training_is_not_heard(tmp_path: Path, monkeypatch, place: str) -> None:
    plan = tiny("release.encoder=public")
    home = one_home(tmp_path, plan)
    reply_to(home, errand_record(opening(plan)))
    before = home.load(RUN)["client"]

    def broken(*_: object) -> None:
        raise RuntimeError("patient 17 has no diagnosis")

    monkeypatch.setattr(place, broken)
    anchors = {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4)}
    reply = reply_to(home, errand_record(opening(plan, hop=2, learn=True, broadcast=anchors)))
    assert set(reply.content) == {"upload", "facts"}
    assert paid(home) == 2
    assert "patient 17" in (home.path / "refusals.log").read_text()
    if "finetune" in place:
        after = home.load(RUN)["client"]
        assert all(torch.equal(after["head"][name], value) for name, value in before["head"].items())


def test_a_learning_rate_that_breaks_the_model_is_not_heard(tmp_path: Path) -> None:
    plan = tiny("train.lr=1e30")
    home = one_home(tmp_path, plan)
    reply_to(home, errand_record(opening(plan)))
    anchors = {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4)}
    reply = reply_to(home, errand_record(opening(plan, hop=2, learn=True, broadcast=anchors)))
    assert set(reply.content) == {"upload", "facts"}
    assert "was not learnt from" in (home.path / "refusals.log").read_text()


def test_messages_that_are_none(tmp_path: Path) -> None:
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    home = one_home(tmp_path, tiny())
    contents = [
        RecordDict(),
        RecordDict({"errand": ConfigRecord({"text": "{"})}),
        RecordDict({"errand": ConfigRecord({"text": "[]"}), "broadcast": ArrayRecord()}),
        RecordDict({"errand": ConfigRecord({"text": json.dumps({"plan": 3})}), "broadcast": ArrayRecord()}),
    ]
    for content in contents:
        for kind in ("train", "query"):
            assert refusal(reply_to(home, content, kind)) == "bad-request"


def test_the_budget_of_many_runs_is_one_budget(tmp_path: Path) -> None:
    plan = tiny("run.rounds=2")
    home = one_home(tmp_path, plan)
    for number in range(6):
        reply_to(home, errand_record(opening(plan, run=f"{number:016x}")))
    assert paid(home) == 2


def test_error_texts_stay_at_home(tmp_path: Path, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("patient 17 has no diagnosis")

    monkeypatch.setattr("vpdr.flower.node.seat_of", broken)
    plan = tiny()
    home = one_home(tmp_path, plan)
    assert refusal(reply_to(home, errand_record(opening(plan)))) == "failed"
    assert "patient 17" in (home.path / "refusals.log").read_text()


def test_a_node_without_a_folder_answers_nothing(tmp_path: Path, monkeypatch) -> None:
    from flwr.app import Message

    monkeypatch.delenv("VPDR_HOMES", raising=False)
    grid = InProcessGrid(client_app(), [tmp_path])
    grid.contexts[2].node_config.clear()
    grid.contexts[2].run_config["folder"] = str(one_home(tmp_path, tiny()).path)  # the submitter's wish
    (reply,) = grid.send_and_receive([Message(greeting_record(tiny()), 2, "query")])
    assert refusal(reply) == "no-policy"


def test_an_upload_is_rebuilt_from_a_list_of_names(tmp_path: Path) -> None:
    plan = tiny("mechanism.kind=vpp")
    home = one_home(tmp_path, plan)
    content = reply_to(home, errand_record(opening(plan))).content
    assert set(content) == {"upload", "facts"}
    assert set(content["upload"]) == {"vectors"}
    assert set(unpacked(content["facts"]["z"])) == {"facts", "labels"}
    assert set(content["facts"]) == {"z"}
    secret = (home.path / "dataset.json").read_text()
    assert json.loads(secret)["seal"].encode() not in content["facts"]["z"]


def test_a_client_that_only_measures_sends_nothing(tmp_path: Path) -> None:
    plan = tiny()
    home = one_home(tmp_path, plan)
    content = reply_to(home, errand_record(Errand(run=RUN, hop=1, plan=plan))).content
    assert set(content) == {"facts"}
    assert paid(home) == 0
