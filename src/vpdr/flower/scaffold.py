"""A ready app folder for `flwr run`."""

from importlib import resources
from pathlib import Path

from vpdr.errors import InvalidInput
from vpdr.files import cannot_write, write_atomically
from vpdr.plan.plan import Plan
from vpdr.records.toml_text import toml_text

FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "policy.example.toml": "policy.example.toml",
    "client.py": "vpdr_app/client.py",
    "server.py": "vpdr_app/server.py",
}


def write_app(folder: Path, plan: Plan) -> list[Path]:
    """Write the app that runs this plan; a folder that is in use is left alone."""
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder} is a file; choose a new folder for the app")
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInput(f"{folder} is not empty; choose a new folder for the app")
    source = resources.files("vpdr.flower.template")
    content = {target: (source / name).read_bytes() for name, target in FILES.items()}
    content["vpdr_app/__init__.py"] = b'"""A vpdr run as a Flower app."""\n'
    content["vpdr_app/plan.toml"] = toml_text(plan.to_data()).encode()
    try:
        (folder / "vpdr_app").mkdir(parents=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    for name, text in content.items():
        write_atomically(folder / name, text)
    return [folder / name for name in content]
