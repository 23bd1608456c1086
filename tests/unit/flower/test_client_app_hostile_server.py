"""Whatever a server sends, a client releases no more than its policy allows, and refuses with a code."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.unit.flower.conftest import (
    RUN,
    make_feature_store,
    make_finetune_request,
    make_request,
    make_store,
    num_charges,
    tiny,
)
from vpdr.flower.client_app import client_app
from vpdr.flower.messages import RoundRequest, decompress_json, hello_to_record, reply_from_message, request_to_record
from vpdr.flower.owner import NodeStore, RefusalCode
from vpdr.flower.simulation import InProcessGrid

BAD = {
    "epsilon 100": (make_request(tiny("budget.epsilon=100")), "epsilon"),
    "no mechanism": (make_request(tiny("mechanism.kind=none")), "mechanism"),
    "a thousand rounds": (make_request(tiny("run.rounds=1000")), "rounds"),
    "a thousandth round": (make_request(tiny(), message_index=1000), "bad-request"),
    "a round zero": (make_request(tiny(), message_index=0), "bad-request"),
    "a path for a name": (make_request(tiny(), run="../../../../x"), "bad-request"),
}


def reply_to(store: NodeStore, message, kind: str = "train"):
    """The reply to a request, or to the content of a message."""
    from flwr.app import Message

    grid = InProcessGrid(client_app(), [store.path])
    content = request_to_record(message) if isinstance(message, RoundRequest) else message
    (reply,) = grid.send_and_receive([Message(content, 2, kind)])
    return reply


def refusal(reply) -> str:
    """The code of a refusal; checks that the reply holds nothing else."""
    assert not reply.has_content()
    assert reply.error.reason in list(RefusalCode)
    return reply.error.reason


@pytest.mark.parametrize("case", BAD, ids=str)
def test_a_request_beyond_the_policy_is_refused_with_a_code(tmp_path: Path, case: str) -> None:
    store = make_store(tmp_path, tiny())
    request, code = BAD[case]
    assert refusal(reply_to(store, request)) == code
    assert num_charges(store) == 0
    assert not (store.path / "runs").exists()
    assert code in (store.path / "refusals.log").read_text()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_broadcast_of_nans_is_refused(tmp_path: Path, value: float) -> None:
    config = tiny()
    store = make_store(tmp_path, config)
    assert not reply_to(store, make_request(config)).has_error()
    before = (store.path / "runs" / f"{RUN}.pt").read_bytes()
    broadcast = {"global.vectors": torch.full((4, 12), value), "global.labels": torch.arange(4)}
    request = make_finetune_request(config, broadcast)
    assert refusal(reply_to(store, request)) == "broadcast"
    assert num_charges(store) == 1
    assert (store.path / "runs" / f"{RUN}.pt").read_bytes() == before


def huge(framework: str) -> dict[str, torch.Tensor]:
    """A broadcast with huge finite values and valid shapes."""
    if framework == "fedproto":
        return {"global.vectors": torch.full((4, 12), 1e30), "global.labels": torch.arange(4)}
    shapes = {"down": (1, 12), "up": (12, 1), "hidden.weight": (8, 12), "hidden.bias": (8,)}
    shapes |= {"out.weight": (4, 8), "out.bias": (4,)}
    return {name: torch.full(shape, 1e38) for name, shape in shapes.items()}


@pytest.mark.parametrize("framework", ["fedproto", "mpft"])
def test_a_broadcast_that_would_break_the_model_changes_nothing(tmp_path: Path, framework: str) -> None:
    config = tiny(f"framework.kind={framework}")
    store = make_store(tmp_path, config)
    reply_to(store, make_request(config))
    before = (store.path / "runs" / f"{RUN}.pt").read_bytes()
    broadcast = huge(framework)
    request = make_finetune_request(config, broadcast)
    assert refusal(reply_to(store, request)) == "broadcast"
    assert num_charges(store) == 1
    assert (store.path / "runs" / f"{RUN}.pt").read_bytes() == before


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
    config = tiny()
    store = make_store(tmp_path, config)
    request = make_finetune_request(config, broadcast)
    assert refusal(reply_to(store, request)) == "broadcast"
    assert num_charges(store) == 0


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
def test_a_teacher_that_does_not_fit_is_refused_before_data_are_read(tmp_path: Path, monkeypatch, broadcast) -> None:
    config = tiny("framework.kind=mpft")
    store = make_store(tmp_path, config)
    monkeypatch.setattr("vpdr.client.Client.finetune", lambda *_: pytest.fail("data were read"))
    request = make_finetune_request(config, broadcast)
    assert refusal(reply_to(store, request)) == "broadcast"
    assert num_charges(store) == 0


@pytest.mark.parametrize("size", [0.0, 1e15])
def test_a_steep_feature_map_fails_on_no_sample(tmp_path: Path, size: float) -> None:
    """If features could overflow, a missing upload would reveal whether a sample is that large."""
    config = tiny("framework.kind=mpft", "release.encoder=broadcast")
    store = make_feature_store(tmp_path, config)
    arrays = dict(np.load(tmp_path / "silo.npz"))
    arrays["train_x"][0] = size
    np.savez(tmp_path / "silo.npz", **arrays)
    steep = {**teacher(), "down": torch.full((1, 12), 1e18), "up": torch.full((12, 1), 1e18)}
    reply = reply_to(store, make_finetune_request(config, steep))
    upload = reply_from_message(reply).upload
    assert upload.in_broadcast_space
    assert upload.vectors.isfinite().all()
    assert num_charges(store) == 1


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 1, 2, 3]], ids=["lacks a class", "has all"])
def test_a_refused_broadcast_does_not_reveal_which_classes_a_client_has(tmp_path: Path, labels: list[int]) -> None:
    config = tiny("framework.kind=mpft")
    store = make_feature_store(tmp_path, config, labels)
    request = make_finetune_request(config, teacher(trust=3))
    assert refusal(reply_to(store, request)) == "broadcast"
    assert not reply_to(store, make_finetune_request(config, teacher())).has_error()


@pytest.mark.parametrize("place", ["vpdr.client.Client.finetune", "vpdr.client.evaluation.accuracy_by_predictor"])
def test_an_error_in_training_does_not_show_in_the_reply(tmp_path: Path, monkeypatch, place: str) -> None:
    config = tiny("release.encoder=public")
    store = make_store(tmp_path, config)
    reply_to(store, make_request(config))
    before = store.load(RUN)["client"]

    def broken(*_: object) -> None:
        raise RuntimeError("patient 17 has no diagnosis")

    monkeypatch.setattr(place, broken)
    anchors = {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4)}
    reply = reply_to(store, make_finetune_request(config, anchors))
    assert set(reply.content) == {"upload", "facts"}
    assert num_charges(store) == 2
    assert "patient 17" in (store.path / "refusals.log").read_text()
    if "finetune" in place:
        after = store.load(RUN)["client"]
        assert all(torch.equal(after["head"][name], value) for name, value in before["head"].items())


def test_a_learning_rate_that_breaks_the_model_does_not_show_in_the_reply(tmp_path: Path) -> None:
    config = tiny("train.lr=1e30")
    store = make_store(tmp_path, config)
    reply_to(store, make_request(config))
    anchors = {"global.vectors": torch.zeros(4, 12), "global.labels": torch.arange(4)}
    reply = reply_to(store, make_finetune_request(config, anchors))
    assert set(reply.content) == {"upload", "facts"}
    assert "fine-tuning failed" in (store.path / "refusals.log").read_text()


def test_invalid_messages_are_refused(tmp_path: Path) -> None:
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    store = make_store(tmp_path, tiny())
    contents = [
        RecordDict(),
        RecordDict({"errand": ConfigRecord({"text": "{"})}),
        RecordDict({"errand": ConfigRecord({"text": "[]"}), "broadcast": ArrayRecord()}),
        RecordDict({"errand": ConfigRecord({"text": json.dumps({"plan": 3})}), "broadcast": ArrayRecord()}),
    ]
    for content in contents:
        for kind in ("train", "query"):
            assert refusal(reply_to(store, content, kind)) == "bad-request"


def test_the_budget_of_many_runs_is_one_budget(tmp_path: Path) -> None:
    config = tiny("run.rounds=2")
    store = make_store(tmp_path, config)
    for number in range(6):
        reply_to(store, make_request(config, run=f"{number:016x}"))
    assert num_charges(store) == 2


def test_error_texts_are_not_sent(tmp_path: Path, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("patient 17 has no diagnosis")

    monkeypatch.setattr("vpdr.flower.client_app.load_local_client", broken)
    config = tiny()
    store = make_store(tmp_path, config)
    assert refusal(reply_to(store, make_request(config))) == "failed"
    assert "patient 17" in (store.path / "refusals.log").read_text()


def test_a_node_without_a_directory_refuses(tmp_path: Path, monkeypatch) -> None:
    from flwr.app import Message

    monkeypatch.delenv("VPDR_HOMES", raising=False)
    grid = InProcessGrid(client_app(), [tmp_path])
    grid.contexts[2].node_config.clear()
    # the run config is the server's, and must not choose the directory
    grid.contexts[2].run_config["folder"] = str(make_store(tmp_path, tiny()).path)
    (reply,) = grid.send_and_receive([Message(hello_to_record(tiny()), 2, "query")])
    assert refusal(reply) == "no-policy"


def test_an_upload_is_rebuilt_from_a_list_of_names(tmp_path: Path) -> None:
    config = tiny("mechanism.kind=vpp")
    store = make_store(tmp_path, config)
    content = reply_to(store, make_request(config)).content
    assert set(content) == {"upload", "facts"}
    assert set(content["upload"]) == {"vectors"}
    assert set(decompress_json(content["facts"]["z"])) == {"facts", "labels"}
    assert set(content["facts"]) == {"z"}
    secret = (store.path / "dataset.json").read_text()
    assert json.loads(secret)["seal"].encode() not in content["facts"]["z"]


def test_a_client_that_only_evaluates_sends_no_upload(tmp_path: Path) -> None:
    config = tiny()
    store = make_store(tmp_path, config)
    content = reply_to(store, RoundRequest(run=RUN, message_index=1, config=config)).content
    assert set(content) == {"facts"}
    assert num_charges(store) == 0
