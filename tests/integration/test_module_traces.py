"""How many modules a reader must open to follow a release, or a whole run."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import vpdr

SMALL = (
    "benchmark.kind=synthetic",
    "benchmark.samples=40",
    "model.dim=8",
    "run.rounds=2",
    "mechanism.kind=vpp",
    "regulariser.kind=dcr",
)


def modules_of(call: Callable[[], object]) -> set[str]:
    """The modules of vpdr in which a function runs while it is called."""
    modules = set()

    def note(frame, event, _) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            modules.add(frame.f_globals.get("__name__", ""))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return {name for name in modules if name.split(".")[0] == "vpdr"}


def test_a_release_passes_through_at_most_ten_modules() -> None:
    for source, mechanism in (("paper", "igpp"), ("paper", "vpp"), ("strict", "rapp")):
        settings = [*SMALL[:4], f"mechanism.kind={mechanism}"]
        client = vpdr.build(vpdr.load_config(source, *settings)).clients[0]
        modules = modules_of(lambda client=client: client.release(1))
        assert len(modules) <= 10, sorted(modules)


TRACED_RUN = """
import sys
from tests.integration.test_module_traces import SMALL, modules_of
from vpdr.cli import main
from vpdr.cli.app import load_command
load_command("run")  # its modules run when they are imported; that is not counted
options = [part for setting in SMALL for part in ("--set", setting)]
sys.argv = ["vpdr", "run", "paper", *options, "--quiet", "--out", sys.argv[1]]

def run():
    try:
        main()
    except SystemExit as stopped:
        assert not stopped.code

modules = modules_of(run)
print(len(modules), *sorted(modules))
"""


def test_a_run_passes_through_at_most_fifty_modules(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRACED_RUN, str(tmp_path / "run")],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    count, *modules = done.stdout.split()
    assert int(count) <= 50, modules
