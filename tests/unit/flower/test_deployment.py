"""App directories, keys, processes and the command line."""

import json
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests.unit.federation.conftest import TINY, timeless
from tests.unit.flower.conftest import tiny
from vpdr.cli import main
from vpdr.flower.deployment import Deployment, Keys, ProcessFailed, ProcessGroup, free_ports, wait_for_port, write_app
from vpdr.flower.owner import create_simulated_nodes, read_policy
from vpdr.flower.server_app import ServerConfig, load_single_config, parse_server_config, server_app
from vpdr.validation import InvalidInput

SETTINGS = [part for setting in TINY for part in ("--set", setting)]


def test_an_app_folder_is_ready_to_run(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "app"
    assert main(["flower", "init", str(folder), *SETTINGS]) == 0
    assert "plan.toml" in capsys.readouterr().out
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    components = project["tool"]["flwr"]["app"]["components"]
    assert components == {"serverapp": "vpdr_app.server:app", "clientapp": "vpdr_app.client:app"}
    assert parse_server_config(project["tool"]["flwr"]["app"]["config"]) == ServerConfig(clients=4, minimum=3)
    config = load_single_config(str(folder / "vpdr_app" / "plan.toml"))
    assert config.release.noise == "system"  # real clients, real noise
    assert config.benchmark.clients == 3
    assert read_policy(folder / "policy.example.toml").allow.metrics == "nothing"
    sizes = [file.stat().st_size for file in folder.rglob("*")]
    assert sum(sizes) < 100_000


def test_the_app_folder_runs(tmp_path: Path, monkeypatch) -> None:
    from vpdr.flower.simulation import InProcessGrid

    config = tiny("run.rounds=1")
    write_app(tmp_path / "app", config)
    monkeypatch.syspath_prepend(str(tmp_path / "app"))
    import vpdr_app.client
    import vpdr_app.server

    grid = InProcessGrid(vpdr_app.client.app, create_simulated_nodes(config, tmp_path / "nodes"))
    context = grid.contexts[2]
    context.run_config = {"out": str(tmp_path / "out"), "minimum": 3, "clients": 3}
    vpdr_app.server.app(grid, context)
    assert json.loads((tmp_path / "out" / "ended.json").read_text()) == {"ok": True, "error": ""}
    assert (tmp_path / "out" / "record.json").exists()
    assert (tmp_path / "out" / "report.html").exists()


def test_old_keys_of_the_run_config_are_read_with_a_hint(caplog) -> None:
    new = parse_server_config({"startup-timeout": 5.0, "max-norm": 2.0})
    assert (new.startup_timeout, new.max_norm, caplog.messages) == (5.0, 2.0, [])
    assert parse_server_config({"patience": 5.0, "most-norm": 2.0}) == new
    hints = [message.split(";")[0] for message in caplog.messages]
    assert hints == ["patience is now startup-timeout", "most-norm is now max-norm"]
    with pytest.raises(InvalidInput, match="patience is the old name of startup-timeout"):
        parse_server_config({"patience": 5.0, "startup-timeout": 5.0})


def test_a_failed_run_writes_its_error(tmp_path: Path) -> None:
    from vpdr.flower.client_app import client_app
    from vpdr.flower.server_app import NotEnoughClients
    from vpdr.flower.simulation import InProcessGrid

    write_app(tmp_path / "app", tiny())
    grid = InProcessGrid(client_app(), create_simulated_nodes(tiny("run.rounds=1"), tmp_path / "nodes"))
    context = grid.contexts[2]
    context.run_config = {"out": str(tmp_path / "out"), "startup-timeout": 0.0}
    with pytest.raises(NotEnoughClients):
        server_app(tmp_path / "app" / "vpdr_app" / "plan.toml")(grid, context)
    outcome = json.loads((tmp_path / "out" / "ended.json").read_text())
    assert not outcome["ok"]
    assert "turned away: rounds" in outcome["error"]
    context.run_config = {"out": "here"}
    with pytest.raises(InvalidInput, match="absolute path"):
        server_app(tmp_path / "app" / "vpdr_app" / "plan.toml")(grid, context)


def test_a_folder_in_use_is_left_alone(tmp_path: Path, capsys) -> None:
    (tmp_path / "note").write_text("mine")
    assert main(["flower", "init", str(tmp_path), *SETTINGS]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_a_comparison_is_not_one_run(capsys, tmp_path: Path) -> None:
    assert main(["flower", "simulate", "--plan", "quickstart", "--out", str(tmp_path / "x")]) == 2
    assert "Flower runs one plan" in capsys.readouterr().err


def test_a_simulation_by_command_equals_vpdr_run(tmp_path: Path, capsys) -> None:
    out, settings = tmp_path / "flower", [*SETTINGS, "--set", "run.rounds=1", "--set", "run.name=x"]
    assert main(["flower", "simulate", "--out", str(out), "--json", *settings]) == 0
    result = json.loads(capsys.readouterr().out)
    assert main(["run", "paper", "--out", str(tmp_path / "run"), "--json=full", *settings]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert result.pop("exchange")["engine"] == "flower"
    for record in (result, expected):
        record.pop("out")
    assert timeless(result) == timeless(expected)
    assert (out / "report.html").exists()
    assert main(["flower", "simulate", "--out", str(out), "--resume", *settings]) == 0
    assert "messages without an answer: 0" in capsys.readouterr().out


def test_keys_are_made_once_and_kept_secret(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

    keys = Keys(tmp_path / "keys")
    keys.make(["127.0.0.1", "example.org"], ["node-000"])
    before = {path: path.read_bytes() for path in keys.directory.iterdir()}
    keys.make(["127.0.0.1"], ["node-000", "node-001"])
    assert all(path.read_bytes() == content for path, content in before.items())
    for secret in (keys.server_key, keys.node_key("node-000")):
        assert secret.stat().st_mode & 0o077 == 0
    authority = x509.load_pem_x509_certificate(keys.ca_certificate.read_bytes())
    server = x509.load_pem_x509_certificate(keys.server_certificate.read_bytes())
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["example.org"]
    private = load_ssh_private_key(keys.node_key("node-000").read_bytes(), None)
    public = load_ssh_public_key((keys.directory / "node-000.pub").read_bytes())
    assert private.public_key() == public
    assert private.curve.name == "secp384r1"


def test_keys_by_command(tmp_path: Path, capsys) -> None:
    assert main(["flower", "keys", str(tmp_path / "server"), "--host", "example.org"]) == 0
    assert main(["flower", "keys", str(tmp_path / "node"), "--node", "hospital-a"]) == 0
    assert sorted(path.name for path in (tmp_path / "node").iterdir()) == ["hospital-a", "hospital-a.pub"]
    assert (tmp_path / "server" / "ca.crt").exists()
    assert main(["flower", "keys", str(tmp_path)]) == 2
    assert "--host NAME" in capsys.readouterr().err


CHILD = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid"


def alive(process: int) -> bool:
    """Whether a process exists and is not a zombie."""
    path = Path(f"/proc/{process}/stat")
    return path.exists() and path.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_commands_are_found_beside_an_interpreter_that_was_not_activated(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    deployment = Deployment(folder=tmp_path / "up", config=tiny())
    first, *others = deployment.processes.environment["PATH"].split(os.pathsep)
    assert (first, others) == (str(Path(sys.executable).parent), ["/usr/bin"])


def test_processes_end_with_their_children(tmp_path: Path) -> None:
    processes = ProcessGroup(tmp_path, os.environ)
    code = f"import subprocess, sys, time; print({CHILD}, 'ready', flush=True); time.sleep(60)"
    parent = processes.start("one", [sys.executable, "-c", code])
    while "ready" not in processes.read_log("one"):
        processes.check_running("one")
    child = int(processes.read_log("one").split()[0])
    assert alive(child)
    processes.stop_all()
    assert not processes.running
    assert not (tmp_path / "one.pid").exists()
    deadline = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(parent)
    assert not alive(child)


def test_a_failed_process_is_reported_in_one_line(tmp_path: Path) -> None:
    processes = ProcessGroup(tmp_path, os.environ)
    assert processes.run_to_completion("fine", [sys.executable, "-c", "print(7)"], 60) == "7\n"
    with pytest.raises(ProcessFailed, match="bad ended with code 3: oh"):
        processes.run_to_completion("bad", [sys.executable, "-c", "print('oh'); raise SystemExit(3)"], 60)
    with pytest.raises(ProcessFailed, match="did not end within"):
        processes.run_to_completion("slow", [sys.executable, "-c", "import time; time.sleep(60)"], 0.1)
    (port,) = free_ports(1)
    assert not wait_for_port(port, 0.3)


def test_a_deployment_of_another_plan_is_refused(tmp_path: Path) -> None:
    write_app(tmp_path / "app", tiny())
    with pytest.raises(InvalidInput, match="runs another plan"), Deployment(folder=tmp_path, config=tiny("run.seed=1")):
        pass


def test_flower_is_imported_only_where_it_is_used() -> None:
    code = "import vpdr.cli, vpdr.flower.deployment, sys; print('flwr' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_flower_an_app_can_be_written_and_a_run_says_what_to_install(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    assert main(["flower", "init", str(tmp_path / "app"), *SETTINGS]) == 0
    assert main(["flower", "simulate", "--out", str(tmp_path / "out"), *SETTINGS]) == 2
    assert "pip install 'vpdr[flower]'" in capsys.readouterr().err
