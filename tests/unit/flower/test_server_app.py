"""The server continues without missing and hostile clients, records them, and can be resumed."""

from pathlib import Path

import pytest
import torch

from tests.unit.flower.conftest import FaultyGrid, edit_policy, make_server_config, num_charges, tiny, without_exchange
from vpdr.federation import run_federation
from vpdr.flower.client_app import client_app
from vpdr.flower.messages import compress_json, decompress_json, reply_from_message
from vpdr.flower.owner import create_simulated_nodes
from vpdr.flower.server_app import NotEnoughClients, ServerConfig, serve
from vpdr.flower.simulation import InProcessGrid
from vpdr.records import read_record
from vpdr.report.html import write_run_report
from vpdr.validation import InvalidInput


def with_upload(reply, labels: list | None = None, **arrays: torch.Tensor):
    """A reply with another upload."""
    from flwr.app import ArrayRecord, ConfigRecord

    content = reply.content
    content["upload"] = ArrayRecord({**content["upload"].to_torch_state_dict(), **arrays})
    if labels is not None:
        before = decompress_json(content["facts"]["z"])
        content["facts"] = ConfigRecord({"z": compress_json({**before, "labels": labels})})
    return reply


def with_metadata(reply, **facts: object):
    """A reply with other metadata."""
    from flwr.app import ConfigRecord

    before = decompress_json(reply.content["facts"]["z"])
    edited = {**before, "facts": {**before["facts"], **facts}}
    reply.content["facts"] = ConfigRecord({"z": compress_json(edited)})
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


@pytest.mark.parametrize("reason", UPLOADS, ids=str)
def test_a_hostile_upload_is_dropped_and_the_round_goes_on(tmp_path: Path, reason: str) -> None:
    config = tiny("run.rounds=1")

    def fault(part, message, work):
        reply = work()
        opens = part == 1 and message.metadata.message_type == "train" and "upload" in reply.content
        return with_upload(reply, **UPLOADS[reason]) if opens else reply

    grid = FaultyGrid(create_simulated_nodes(config, tmp_path / "nodes"), fault)
    record = serve(grid, config, tmp_path / "out", server_config=make_server_config())
    assert record.exchange.messages[0]["dropped"] == {"client-001": reason}
    assert record.exchange.dropped == 1
    assert not record.rounds[0].clients["client-001"].present
    assert record.rounds[0].clients["client-000"].present


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
def test_invalid_metadata_are_dropped(tmp_path: Path, facts) -> None:
    config = tiny("run.rounds=1")

    def fault(part, message, work):
        reply = work()
        is_request = part == 2 and message.metadata.message_type == "train"
        return with_metadata(reply, **facts) if is_request else reply

    grid = FaultyGrid(create_simulated_nodes(config, tmp_path / "nodes"), fault)
    record = serve(grid, config, tmp_path / "out", server_config=make_server_config())
    assert all(set(each["dropped"]) == {"client-002"} for each in record.exchange.messages)


@pytest.mark.parametrize("labels", [["a"] * 4, 3, [[0], [1, 2]], [2**70] * 4, None, {}, [0.5] * 4], ids=str)
def test_invalid_labels_do_no_harm(tmp_path: Path, labels) -> None:
    config = tiny("run.rounds=1")

    def fault(part, message, work):
        reply = work()
        opens = part == 1 and message.metadata.message_type == "train" and "upload" in reply.content
        return with_upload(reply, labels if labels is not None else [None] * 4) if opens else reply

    grid = FaultyGrid(create_simulated_nodes(config, tmp_path / "nodes"), fault)
    record = serve(grid, config, tmp_path / "out", server_config=make_server_config())
    first = record.exchange.messages[0]
    assert "client-001" in {**first["missing"], **first["dropped"]} or labels == [0.5] * 4


def test_a_decompression_bomb_is_refused() -> None:
    with pytest.raises(ValueError, match="Unterminated string"):
        decompress_json(compress_json({"facts": "a" * 10_000_000}))


def test_invalid_replies(tmp_path: Path) -> None:
    from flwr.app import ConfigRecord, Error, Message, RecordDict

    config = tiny("run.rounds=1")
    replies = {
        0: lambda message: Message(RecordDict({"facts": ConfigRecord({"z": b"no zip"})}), reply_to=message),
        1: lambda message: Message(Error(code=5, reason="Node Unavailable at 10.0.0.7"), reply_to=message),
    }

    def fault(part, message, work):
        is_request = message.metadata.message_type == "train"
        return replies[part](message) if is_request and part in replies else work()

    grid = FaultyGrid(create_simulated_nodes(config, tmp_path / "nodes"), fault)
    record = serve(grid, config, tmp_path / "out", server_config=make_server_config(minimum=1))
    assert record.exchange.messages[0]["missing"] == {
        "client-000": "bad-request: unreadable: error",
        "client-001": "failed: node unavailable",
    }
    write_run_report(record, tmp_path / "out")  # works with missing clients


def test_a_node_that_stops_and_returns(tmp_path: Path) -> None:
    config = tiny("run.rounds=4")
    node_dirs = create_simulated_nodes(config, tmp_path / "nodes")
    indices = iter(range(100))

    def fault(part, message, work):
        if part != 1 or message.metadata.message_type == "query":
            return work()
        message_index = next(indices) + 1
        return None if message_index == 2 else work()  # killed within the round: no reply

    grid = FaultyGrid(node_dirs, fault)
    record = serve(grid, config, tmp_path / "out", server_config=make_server_config())
    messages = record.exchange.messages
    assert [each["missing"] for each in messages] == [{}, {"client-001": "no reply in time"}, {}, {}, {}]
    present = [each.clients["client-001"].present for each in record.rounds]
    assert present == [False, False, True, True]
    assert num_charges(node_dirs[1]) == 3  # rounds 1, 3 and 4
    assert [entry["round"] for entry in record.ledgers["client-001"]["entries"]] == [1, 3, 4]
    assert num_charges(node_dirs[0]) == 4


def test_a_node_that_missed_the_feature_map_marks_its_upload(tmp_path: Path) -> None:
    config = tiny("framework.kind=mpft", "release.encoder=broadcast", "run.rounds=4")
    node_dirs = create_simulated_nodes(config, tmp_path / "nodes")
    in_broadcast_space: dict[int, list[bool | None]] = {0: [], 1: [], 2: []}

    def fault(part, message, work):
        if message.metadata.message_type == "query":
            return work()
        if part == 1 and len(in_broadcast_space[1]) == 1:  # the message with the first broadcast is lost
            in_broadcast_space[1].append(None)
            return None
        reply = work()
        upload = reply_from_message(reply).upload
        in_broadcast_space[part].append(None if upload is None else upload.in_broadcast_space)
        return reply

    record = serve(FaultyGrid(node_dirs, fault), config, tmp_path / "out", server_config=make_server_config())
    assert in_broadcast_space[0] == in_broadcast_space[2] == [False, True, True, True, None]
    # it receives the feature map one round later
    assert in_broadcast_space[1] == [False, None, False, True, None]
    assert record.privacy.level == "proved"
    assert record.exchange.dropped == 0


def test_a_node_that_comes_back_under_another_number(tmp_path: Path) -> None:
    config = tiny("run.rounds=3")
    node_dirs = create_simulated_nodes(config, tmp_path / "nodes")
    grid = FaultyGrid([*node_dirs, node_dirs[1]], lambda part, message, work: work())
    grid.offline = {5}

    def move_node(entry) -> None:
        if entry["message"] == 1:
            grid.offline = {3}

    record = serve(grid, config, tmp_path / "out", server_config=make_server_config(), on_message=move_node)
    assert [each["missing"] for each in record.exchange.messages] == [{}, {}, {}, {}]
    assert without_exchange(record) == without_exchange(run_federation(config, tmp_path / "run").record)


def test_a_second_node_of_the_same_name_is_turned_away(tmp_path: Path) -> None:
    config = tiny("run.rounds=1")
    node_dirs = create_simulated_nodes(config, tmp_path / "nodes")
    grid = InProcessGrid(client_app(), [*node_dirs, node_dirs[0]])
    record = serve(grid, config, tmp_path / "out", server_config=make_server_config())
    assert record.exchange.turned_away == ("a second node of the same name",)


def test_a_node_that_did_not_reply_to_hello_is_asked_again(tmp_path: Path) -> None:
    config = tiny("run.rounds=1")
    asked_nodes = []

    def fault(part, message, work):
        asked_nodes.append(part)
        return None if part == 1 and asked_nodes.count(1) == 1 else work()

    grid = FaultyGrid(create_simulated_nodes(config, tmp_path / "nodes"), fault)
    server_config = ServerConfig(clients=3, minimum=3, startup_timeout=30.0)
    record = serve(grid, config, tmp_path / "out", server_config=server_config)
    assert len(record.clients) == 3
    assert record.exchange.turned_away == ()


def test_a_late_client_is_recorded(tmp_path: Path) -> None:
    config = tiny("run.rounds=2")
    grid = FaultyGrid(create_simulated_nodes(config, tmp_path / "nodes"), lambda part, message, work: work())
    grid.offline = {4}
    record = serve(
        grid,
        config,
        tmp_path / "out",
        server_config=make_server_config(clients=2),
        on_message=lambda _: grid.offline.clear(),
    )
    assert record.clients == ("client-000", "client-001")
    assert record.exchange.too_late == ("client-002",)


def test_too_few_nodes_end_the_run(tmp_path: Path) -> None:
    config = tiny()
    node_dirs = create_simulated_nodes(config, tmp_path / "nodes")
    edit_policy(node_dirs[0], ("epsilon = 1.0", "epsilon = 0.1"))
    server_config = ServerConfig(clients=3, minimum=3, startup_timeout=0.0)
    with pytest.raises(NotEnoughClients, match="2 clients take part, 3 are needed; turned away: epsilon"):
        serve(InProcessGrid(client_app(), node_dirs), config, tmp_path / "out", server_config=server_config)
    with pytest.raises(NotEnoughClients, match="0 clients take part"):
        serve(InProcessGrid(client_app(), []), config, tmp_path / "none", server_config=make_server_config())


def test_too_few_answers_stop_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    config = tiny("mechanism.kind=vpp", "regulariser.kind=dcr")
    whole = run_federation(config, tmp_path / "run").record
    node_dirs = create_simulated_nodes(config, tmp_path / "nodes")
    asked = []

    def fault(part, message, work):
        asked.append(part)
        reply = work()  # the release is charged, and its reply is lost
        return None if message.metadata.message_type == "train" and 3 + 2 * 3 < len(asked) <= 12 else reply

    all_clients = make_server_config(minimum=3)
    with pytest.raises(NotEnoughClients, match="message 3: 0 valid answers, 3 are needed"):
        serve(FaultyGrid(node_dirs, fault), config, tmp_path / "out", server_config=all_clients)
    with pytest.raises(InvalidInput, match="already holds a run"):
        serve(InProcessGrid(client_app(), node_dirs), config, tmp_path / "out", server_config=all_clients)
    grid = InProcessGrid(client_app(), node_dirs)
    record = serve(grid, config, tmp_path / "out", server_config=all_clients, resume=True)
    assert without_exchange(record) == without_exchange(whole)
    assert num_charges(node_dirs[0]) == 3
    again = serve(grid, config, tmp_path / "out", server_config=all_clients, resume=True)
    assert without_exchange(again) == without_exchange(read_record(tmp_path / "out/record.json"))


def test_owners_who_share_no_metrics_leave_a_record_without_measurements(tmp_path: Path) -> None:
    config = tiny()
    node_dirs = create_simulated_nodes(config, tmp_path / "nodes")
    for node_dir in node_dirs:
        edit_policy(node_dir, ('metrics = "everything"', 'metrics = "nothing"'))
    grid = InProcessGrid(client_app(), node_dirs)
    record = serve(grid, config, tmp_path / "out", server_config=make_server_config())
    assert record.final == {"own": {}, "all": {}}
    assert record.rounds[0].clients["client-000"].epsilon > 0
    assert record.privacy.epsilon_spent > 0.99
    write_run_report(record, tmp_path / "out")
