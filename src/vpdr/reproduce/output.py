"""What a reproduction leaves: a page, raw numbers, a picture and a summary, in a folder of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vpdr.errors import DamagedFile, InvalidInput
from vpdr.files import cannot_write, write_atomically
from vpdr.records.store import json_bytes, read_record
from vpdr.reproduce.drawing import saved, stamp
from vpdr.reproduce.page import page
from vpdr.reproduce.sheet import sheet_text
from vpdr.reproduce.summary import SCHEMA

if TYPE_CHECKING:
    from vpdr.report.figures import Figure


def folder_of(out: Path, name: str, *, smoke: bool) -> Path:
    """A smoke run never writes over results."""
    return out / (f"{name}-smoke" if smoke else name)


def write_all(summary: Mapping[str, Any], figure: "Figure", folder: Path) -> list[Path]:
    """All files; the summary comes last, so that a folder with one is whole."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    name = summary["id"]
    stamp(figure, summary)
    contents: dict[str, bytes] = {
        f"{name}.png": saved(figure, "png"),
        f"{name}.svg": saved(figure, "svg"),
        f"{name}.csv": sheet_text(summary).encode(),
        f"{name}.md": page(summary, f"{name}.png").encode(),
        f"{name}.json": json_bytes(summary),
    }
    for file, content in contents.items():
        write_atomically(folder / file, content)
    return [folder / file for file in contents]


def read_summary(path: Path) -> dict[str, Any]:
    """A summary from its file."""
    content = read_record(path)
    if content.get("schema") != SCHEMA:
        raise InvalidInput(f"{path} is not the summary of a reproduction; name an ID.json that one has left")
    if not {"id", "lines", "pairs", "smoke"} <= content.keys():
        raise DamagedFile(f"{path} is not a whole summary; run the reproduction again")
    return content
