"""`PrototypePrivacyMod` in a Flower app."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from vpdr.flower import PrototypePrivacyMod
from vpdr.flower.simulation import InProcessGrid
from vpdr.mechanisms import Igpp
from vpdr.privacy import Budget, Ledger, LedgerFile

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower_mod"
POLICY = """name = "silo"
[budget]
epsilon = 1.0
delta = 1e-5
[allow]
mechanisms = ["igpp"]
rounds = 2
guarantee = "conditional"
"""
PUBLIC = POLICY + '[data]\nencoder = "public"\n'
LABELS = np.arange(40) % 4


def replies(tmp_path: Path, inner, times: int = 1, policy: str = POLICY, **settings):
    from flwr.app import Message, RecordDict
    from flwr.clientapp import ClientApp

    tmp_path.mkdir(exist_ok=True)
    if policy and not (tmp_path / "policy.toml").exists():
        (tmp_path / "policy.toml").write_text(policy)
    mod = PrototypePrivacyMod(**{"classes": 4, "dim": 6, "rounds": 2, **settings})
    app = ClientApp(mods=[mod])
    app.train()(inner)
    grid = InProcessGrid(app, [tmp_path])
    return [grid.send_and_receive([Message(RecordDict(), 2, "train")])[0] for _ in range(times)]


def honest(message, context):
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

    vectors = np.random.default_rng(0).normal(size=(40, 6))
    records = {
        "private": ArrayRecord({"vectors": Array(vectors), "labels": Array(LABELS)}),
        "raw": ArrayRecord({"vectors": Array(vectors)}),
        "notes": ConfigRecord({"patient": "17"}),
        "metrics": MetricRecord({"num-examples": 40}),
    }
    return Message(RecordDict(records), reply_to=message)


def num_charges(tmp_path: Path) -> int:
    path = tmp_path / "ledger.json"
    return len(LedgerFile(path).read().entries) if path.exists() else 0


def test_only_private_prototypes_are_sent(tmp_path: Path) -> None:
    (reply,) = replies(tmp_path, honest)
    assert set(reply.content) == {"prototypes"}
    vectors, labels = reply.content["prototypes"].to_numpy_ndarrays()
    assert (vectors.shape, labels.tolist()) == ((4, 6), [0, 1, 2, 3])
    assert num_charges(tmp_path) == 1
    assert not (tmp_path / "refusals.log").exists()


def test_metrics_are_sent_if_the_policy_allows_them(tmp_path: Path) -> None:
    (reply,) = replies(tmp_path, honest, policy=POLICY + 'metrics = "everything"\n')
    assert set(reply.content) == {"prototypes", "metrics"}


def test_the_budget_ends_and_a_new_process_does_not_renew_it(tmp_path: Path) -> None:
    first, second, third = replies(tmp_path, honest, times=3)
    assert first.has_content()
    assert second.has_content()
    assert third.error.reason == "budget"
    (again,) = replies(tmp_path, honest)
    assert again.error.reason == "budget"
    assert num_charges(tmp_path) == 2


def failing(message, context):
    raise RuntimeError("patient 17 has no diagnosis")


def empty(message, context):
    from flwr.app import Message, RecordDict

    return Message(RecordDict(), reply_to=message)


def error_reply(message, context):
    from flwr.app import Error, Message

    return Message(Error(code=0, reason="patient 17"), reply_to=message)


def nan(message, context):
    reply = honest(message, context)
    from flwr.app import Array, ArrayRecord

    broken = np.full((40, 6), np.nan)
    reply.content["private"] = ArrayRecord({"vectors": Array(broken), "labels": Array(LABELS)})
    return reply


@pytest.mark.parametrize(
    ("inner", "settings", "policy", "code"),
    [
        (failing, {}, POLICY, "failed"),
        (error_reply, {}, POLICY, "failed"),
        (empty, {}, POLICY, "no-private-record"),
        (nan, {}, PUBLIC, "failed"),
        (nan, {"classes": 2}, POLICY, "failed"),
        (honest, {}, "", "no-policy"),
        (honest, {}, "name = 3", "no-policy"),
        (honest, {"mechanism": "none"}, POLICY, "mechanism"),
        (honest, {"mechanism": "vpp"}, POLICY, "mechanism"),
        (honest, {"rounds": 3}, POLICY, "rounds"),
        (honest, {}, POLICY.replace("conditional", "proved"), "guarantee"),
        (honest, {"classes": 2}, POLICY, "failed"),
        (honest, {"mechanism": "no such thing"}, POLICY, "failed"),
    ],
)
def test_an_invalid_reply_of_the_app_is_refused(tmp_path: Path, inner, settings, policy, code) -> None:
    (reply,) = replies(tmp_path, inner, policy=policy, **settings)
    assert not reply.has_content()
    assert reply.error.reason == code
    assert num_charges(tmp_path) == 0


def test_the_policy_declares_whether_the_encoder_is_public(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        PrototypePrivacyMod(classes=4, dim=6, rounds=2, encoder="public")
    proved = POLICY.replace("conditional", "proved")
    assert replies(tmp_path / "a", honest, policy=proved)[0].error.reason == "guarantee"
    public = proved + '[data]\nencoder = "public"\n'
    assert replies(tmp_path / "b", honest, policy=public)[0].has_content()
    assert replies(tmp_path / "c", honest, policy=public.replace('"public"', '"mine"'))[0].has_error()
    assert replies(tmp_path / "d", honest, policy=public.replace('"public"', '"accounted"'))[0].has_error()


def test_the_policy_may_declare_features_computed_from_broadcasts(tmp_path: Path) -> None:
    policy_text = POLICY.replace("conditional", "proved").replace('["igpp"]', '["igpp", "rapp"]')
    policy_text += '[data]\nencoder = "transcript"\n'
    assert replies(tmp_path / "a", honest, policy=policy_text)[0].has_content()
    (entry,) = LedgerFile(tmp_path / "a" / "ledger.json").read().entries
    assert str(entry.receipt.terms.encoder) == "transcript"
    staged = {"mechanism": "rapp", "summariser": "sums"}
    assert replies(tmp_path / "b", honest, policy=policy_text, **staged)[0].error.reason == "failed"
    assert "stays as it is, got broadcast" in (tmp_path / "b" / "refusals.log").read_text()
    fixed = policy_text.replace("transcript", "public")
    assert replies(tmp_path / "c", honest, policy=fixed, **staged)[0].has_content()


@pytest.mark.parametrize("processes", [1, 3])
def test_stages_continue_after_the_last_release(tmp_path: Path, processes: int) -> None:
    """Five stages in two releases: the second adds its two to the three in the saved state."""
    policy = PUBLIC.replace("conditional", "proved").replace('["igpp"]', '["rapp"]')
    staged = {"policy": policy, "mechanism": "rapp", "summariser": "sums"}
    batches = [replies(tmp_path, honest, times=3 // processes, **staged) for _ in range(processes)]
    first, second, third = (reply for batch in batches for reply in batch)
    entries = LedgerFile(tmp_path / "ledger.json").read().entries
    costs = [[event.noise_multiplier for event in entry.receipt.events] for entry in entries]
    assert [len(events) for events in costs] == [6, 4]
    assert max(costs[1][::2]) < min(costs[0][::2])  # of the sums: the last stages have the largest shares
    uploads = [reply.content["prototypes"].to_torch_state_dict() for reply in (first, second)]
    early, late = (upload["variances"] for upload in uploads)
    assert bool((late < early).all())  # precision only adds up
    assert third.error.reason == "budget"


def scaled_app(gain: float, kind: type = np.float32):
    """An app whose features are its samples times a number from the server."""

    def inner(message, context):
        from flwr.app import Array, ArrayRecord

        reply = honest(message, context)
        vectors, labels = reply.content["private"].to_numpy_ndarrays()
        with np.errstate(over="ignore"):
            scaled = vectors.astype(kind) * kind(gain)
        reply.content["private"] = ArrayRecord({"vectors": Array(scaled), "labels": Array(labels)})
        return reply

    return inner


@pytest.mark.parametrize("encoder", ["transcript", "personal"])
@pytest.mark.parametrize(("gain", "kind"), [(1e20, np.float32), (1.5e38, np.float32), (3e4, np.float16)])
def test_features_scaled_by_a_server_are_clamped_and_charged(tmp_path: Path, encoder: str, gain, kind) -> None:
    policy = POLICY + f'[data]\nencoder = "{encoder}"\n'
    (reply,) = replies(tmp_path, scaled_app(gain, kind), policy=policy)
    assert reply.has_content()
    vectors, _ = reply.content["prototypes"].to_numpy_ndarrays()
    assert np.isfinite(vectors).all()
    assert num_charges(tmp_path) == 1
    assert "which were replaced" in (tmp_path / "refusals.log").read_text()


def test_without_budget_scaled_features_are_refused(tmp_path: Path) -> None:
    policy = POLICY + '[data]\nencoder = "transcript"\n'
    replies(tmp_path, honest, times=2, policy=policy)
    reasons = {replies(tmp_path, scaled_app(gain))[0].error.reason for gain in (1.0, 1.5e38)}
    assert reasons == {"budget"}


def test_an_error_after_reading_data_is_charged(tmp_path: Path, monkeypatch) -> None:
    def broken(self, vectors, labels, context):
        raise RuntimeError("patient 17")

    monkeypatch.setattr(Igpp, "release", broken)
    (reply,) = replies(tmp_path, honest, policy=POLICY + "min_class_count = 3\n")
    assert reply.error.reason == "failed"
    assert num_charges(tmp_path) == 1


def test_a_ledger_that_is_gone_or_older_is_noticed(tmp_path: Path) -> None:
    replies(tmp_path, honest)
    ledger = tmp_path / "ledger.json"
    copy = ledger.read_bytes()
    ledger.unlink()
    assert replies(tmp_path, honest)[0].error.reason == "ledger"
    other = Ledger(client="silo", budget=Budget(1.0, 1e-5))
    LedgerFile.create(ledger, other)
    assert replies(tmp_path, honest)[0].error.reason == "ledger"
    ledger.write_bytes(copy)
    assert replies(tmp_path, honest)[0].has_content()


def test_other_samples_need_another_folder(tmp_path: Path) -> None:
    def fewer(message, context):
        from flwr.app import Array, ArrayRecord

        reply = honest(message, context)
        vectors, labels = reply.content["private"].to_numpy_ndarrays()
        reply.content["private"] = ArrayRecord({"vectors": Array(vectors[:39]), "labels": Array(labels[:39])})
        return reply

    assert replies(tmp_path, honest)[0].has_content()
    assert replies(tmp_path, fewer)[0].error.reason == "other-data"


def test_the_example_is_short_and_runs(tmp_path: Path, capsys, monkeypatch) -> None:
    lines = [line for line in (EXAMPLE / "app.py").read_text().splitlines() if line.strip()]
    assert len(lines) < 60
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setattr(sys, "argv", ["run.py", str(tmp_path / "silos")])
    for expected in ("round 3: 4 private uploads, refused []", "refused ['budget'"):
        runpy.run_path(str(EXAMPLE / "run.py"), run_name="__main__")
        assert expected in capsys.readouterr().out
