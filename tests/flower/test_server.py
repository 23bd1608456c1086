"""A server goes on without the missing and the hostile, says who they were, and can be resumed."""

import json
from pathlib import Path

import pytest
import torch

from tests.flower.conftest import FaultyGrid, changed, paid, terms, tiny, without_exchange
from vpdr.engines.runner import run_plan
from vpdr.errors import InvalidInput
from vpdr.flower.client_app import client_app
from vpdr.flower.grid import InProcessGrid
from vpdr.flower.post import ServerTerms, TooFew
from vpdr.flower.serve import serve
from vpdr.flower.simulation import simulated_homes
from vpdr.flower.wire import packed, read_answer, unpacked
from vpdr.report.files import write_run


def forged(reply, labels: list | None = None, **arrays: torch.Tensor):
    """A reply whose upload was exchanged."""
    from flwr.app import ArrayRecord, ConfigRecord

    content = reply.content
    content["upload"] = ArrayRecord({**content["upload"].to_torch_state_dict(), **arrays})
    if labels is not None:
        told = unpacked(content["facts"]["z"])
        content["facts"] = ConfigRecord({"z": packed({**told, "labels": labels})})
    return reply


def told(reply, **facts: object):
    """A reply whose facts were changed."""
    from flwr.app import ConfigRecord

    before = unpacked(reply.content["facts"]["z"])
    changed = {**before, "facts": {**before["facts"], **facts}}
    reply.content["facts"] = ConfigRecord({"z": packed(changed)})
    return reply


UPLOADS = {
    "not finite": {"vectors": torch.full((4, 12), float("nan"))},
    "shape": {"vectors": torch.zeros(4, 13)},
    "norm": {"vectors": torch.full((4, 12), 1e9)},
    "labels": {"labels": [0, 1, 2, 4]},
    "kind of numbers": {"vectors": torch.zeros(4, 12, dtype=torch.float64)},
    "too many": {"vectors": torch.zeros(4001, 12), "labels": [0] * 4001},
    "variances": {"variances": torch.full((4,), -1.0)},
}


@pytest.mark.parametrize("why", UPLOADS, ids=str)
def test_a_hostile_upload_is_dropped_and_the_round_goes_on(tmp_path: Path, why: str) -> None:
    plan = tiny("run.rounds=1")

    def fault(part, message, work):
        reply = work()
        opens = part == 1 and message.metadata.message_type == "train" and "upload" in reply.content
        return forged(reply, **UPLOADS[why]) if opens else reply

    grid = FaultyGrid(simulated_homes(plan, tmp_path / "nodes"), fault)
    record = serve(grid, plan, tmp_path / "out", terms=terms())
    assert record["exchange"]["messages"][0]["dropped"] == {"client-001": why}
    assert record["exchange"]["dropped"] == 1
    assert not record["rounds"][0]["clients"]["client-001"]["present"]
    assert record["rounds"][0]["clients"]["client-000"]["present"]


@pytest.mark.parametrize(
    "facts",
    [
        {"classes": "4"},
        {"classes": 5},
        {"why": "<b>"},
        {"entries": [{"round": 1}]},
        {"measured": {"losses": {"task": "x" * 9}}},
        {"measured": {"accuracy": {"own": 1}}},
        {"measured": 3},
        {"seconds": None},
    ],
    ids=str,
)
def test_facts_that_are_none_are_dropped(tmp_path: Path, facts) -> None:
    plan = tiny("run.rounds=1")

    def fault(part, message, work):
        reply = work()
        return told(reply, **facts) if part == 2 and message.metadata.message_type == "train" else reply

    grid = FaultyGrid(simulated_homes(plan, tmp_path / "nodes"), fault)
    record = serve(grid, plan, tmp_path / "out", terms=terms())
    assert all(set(each["dropped"]) == {"client-002"} for each in record["exchange"]["messages"])


@pytest.mark.parametrize("labels", [["a"] * 4, 3, [[0], [1, 2]], [2**70] * 4, None, {}, [0.5] * 4], ids=str)
def test_labels_that_are_none_do_no_harm(tmp_path: Path, labels) -> None:
    plan = tiny("run.rounds=1")

    def fault(part, message, work):
        reply = work()
        opens = part == 1 and message.metadata.message_type == "train" and "upload" in reply.content
        return forged(reply, labels if labels is not None else [None] * 4) if opens else reply

    grid = FaultyGrid(simulated_homes(plan, tmp_path / "nodes"), fault)
    first = serve(grid, plan, tmp_path / "out", terms=terms())["exchange"]["messages"][0]
    assert "client-001" in {**first["missing"], **first["dropped"]} or labels == [0.5] * 4


def test_a_bomb_is_no_answer() -> None:
    with pytest.raises(ValueError, match="Unterminated string"):
        unpacked(packed({"facts": "a" * 10_000_000}))


def test_replies_that_are_no_replies(tmp_path: Path) -> None:
    from flwr.app import ConfigRecord, Error, Message, RecordDict

    plan = tiny("run.rounds=1")
    replies = {
        0: lambda message: Message(RecordDict({"facts": ConfigRecord({"z": b"no zip"})}), reply_to=message),
        1: lambda message: Message(Error(code=5, reason="Node Unavailable at 10.0.0.7"), reply_to=message),
    }

    def fault(part, message, work):
        asked = message.metadata.message_type == "train"
        return replies[part](message) if asked and part in replies else work()

    grid = FaultyGrid(simulated_homes(plan, tmp_path / "nodes"), fault)
    record = serve(grid, plan, tmp_path / "out", terms=terms(minimum=1))
    assert record["exchange"]["messages"][0]["missing"] == {
        "client-000": "bad-request: unreadable: error",
        "client-001": "failed: node unavailable",
    }
    write_run(record, tmp_path / "out")  # a report can be made of what is there


def test_a_node_that_dies_and_returns(tmp_path: Path) -> None:
    plan = tiny("run.rounds=4")
    homes = simulated_homes(plan, tmp_path / "nodes")
    hops = iter(range(100))

    def fault(part, message, work):
        if part != 1 or message.metadata.message_type == "query":
            return work()
        hop = next(hops) + 1
        return None if hop == 2 else work()  # killed in mid-round: no reply at all

    grid = FaultyGrid(homes, fault)
    record = serve(grid, plan, tmp_path / "out", terms=terms())
    messages = record["exchange"]["messages"]
    assert [each["missing"] for each in messages] == [{}, {"client-001": "no reply in time"}, {}, {}, {}]
    present = [each["clients"]["client-001"]["present"] for each in record["rounds"]]
    assert present == [False, False, True, True]
    assert paid(homes[1]) == 3  # rounds 1, 3 and 4: the ledger came back with the node
    assert [entry["round"] for entry in record["ledgers"]["client-001"]["entries"]] == [1, 3, 4]
    assert paid(homes[0]) == 4


def test_a_node_that_missed_the_path_says_so(tmp_path: Path) -> None:
    plan = tiny("framework.kind=mpft", "release.encoder=transcript", "run.rounds=4")
    homes = simulated_homes(plan, tmp_path / "nodes")
    heard: dict[int, list[bool | None]] = {0: [], 1: [], 2: []}

    def fault(part, message, work):
        if message.metadata.message_type == "query":
            return work()
        if part == 1 and len(heard[1]) == 1:  # the message with the first broadcast is lost
            heard[1].append(None)
            return None
        reply = work()
        upload = read_answer(reply).upload
        heard[part].append(None if upload is None else upload.on_path)
        return reply

    record = serve(FaultyGrid(homes, fault), plan, tmp_path / "out", terms=terms())
    assert heard[0] == heard[2] == [False, True, True, True, None]
    assert heard[1] == [False, None, False, True, None]  # it learns of the path in the round after
    assert record["privacy"]["level"] == "proved"
    assert record["exchange"]["dropped"] == 0


def test_a_node_that_comes_back_under_another_number(tmp_path: Path) -> None:
    plan = tiny("run.rounds=3")
    homes = simulated_homes(plan, tmp_path / "nodes")
    grid = FaultyGrid([*homes, homes[1]], lambda part, message, work: work())
    grid.gone = {5}

    def moved(heard) -> None:
        if heard["message"] == 1:
            grid.gone = {3}

    record = serve(grid, plan, tmp_path / "out", terms=terms(), told=moved)
    assert [each["missing"] for each in record["exchange"]["messages"]] == [{}, {}, {}, {}]
    assert without_exchange(record) == without_exchange(run_plan(plan, tmp_path / "run").record)


def test_a_second_node_of_the_same_name_is_turned_away(tmp_path: Path) -> None:
    plan = tiny("run.rounds=1")
    homes = simulated_homes(plan, tmp_path / "nodes")
    record = serve(InProcessGrid(client_app(), [*homes, homes[0]]), plan, tmp_path / "out", terms=terms())
    assert record["exchange"]["turned_away"] == ["a second node of the same name"]


def test_a_node_that_was_slow_to_say_hello_is_asked_again(tmp_path: Path) -> None:
    plan = tiny("run.rounds=1")
    greeted = []

    def fault(part, message, work):
        greeted.append(part)
        return None if part == 1 and greeted.count(1) == 1 else work()

    grid = FaultyGrid(simulated_homes(plan, tmp_path / "nodes"), fault)
    waiting = ServerTerms(clients=3, minimum=3, patience=30.0)
    record = serve(grid, plan, tmp_path / "out", terms=waiting)
    assert len(record["clients"]) == 3
    assert record["exchange"]["turned_away"] == []


def test_a_name_that_comes_late_is_told(tmp_path: Path) -> None:
    plan = tiny("run.rounds=2")
    grid = FaultyGrid(simulated_homes(plan, tmp_path / "nodes"), lambda part, message, work: work())
    grid.gone = {4}
    record = serve(grid, plan, tmp_path / "out", terms=terms(clients=2), told=lambda _: grid.gone.clear())
    assert record["clients"] == ["client-000", "client-001"]
    assert record["exchange"]["too_late"] == ["client-002"]


def test_too_few_nodes_is_a_clear_end(tmp_path: Path) -> None:
    plan = tiny()
    homes = simulated_homes(plan, tmp_path / "nodes")
    changed(homes[0], ("epsilon = 1.0", "epsilon = 0.1"))
    few = ServerTerms(clients=3, minimum=3, patience=0.0)
    with pytest.raises(TooFew, match="2 clients take part, 3 are needed; turned away: epsilon"):
        serve(InProcessGrid(client_app(), homes), plan, tmp_path / "out", terms=few)
    with pytest.raises(TooFew, match="0 clients take part"):
        serve(InProcessGrid(client_app(), []), plan, tmp_path / "none", terms=terms())


def test_too_few_answers_stop_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    plan = tiny("mechanism.kind=vpp", "regulariser.kind=dcr")
    whole = run_plan(plan, tmp_path / "run").record
    homes = simulated_homes(plan, tmp_path / "nodes")
    asked = []

    def fault(part, message, work):
        asked.append(part)
        reply = work()  # the work is done and paid, and the reply is lost
        return None if message.metadata.message_type == "train" and 3 + 2 * 3 < len(asked) <= 12 else reply

    all_of_them = terms(minimum=3)
    with pytest.raises(TooFew, match="message 3: 0 valid answers, 3 are needed"):
        serve(FaultyGrid(homes, fault), plan, tmp_path / "out", terms=all_of_them)
    with pytest.raises(InvalidInput, match="already holds a run"):
        serve(InProcessGrid(client_app(), homes), plan, tmp_path / "out", terms=all_of_them)
    grid = InProcessGrid(client_app(), homes)
    record = serve(grid, plan, tmp_path / "out", terms=all_of_them, resume=True)
    assert without_exchange(record) == without_exchange(whole)
    assert paid(homes[0]) == 3
    again = serve(grid, plan, tmp_path / "out", terms=all_of_them, resume=True)
    assert without_exchange(again) == without_exchange(json.loads((tmp_path / "out/record.json").read_text()))


def test_owners_who_tell_nothing_leave_a_record_without_measurements(tmp_path: Path) -> None:
    plan = tiny()
    homes = simulated_homes(plan, tmp_path / "nodes")
    for home in homes:
        changed(home, ('metrics = "everything"', 'metrics = "nothing"'))
    record = serve(InProcessGrid(client_app(), homes), plan, tmp_path / "out", terms=terms())
    assert record["final"] == {"own": {}, "all": {}}
    assert record["rounds"][0]["clients"]["client-000"]["epsilon"] > 0
    assert record["privacy"]["epsilon_spent"] > 0.99
    write_run(record, tmp_path / "out")
