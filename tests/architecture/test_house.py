"""The room rules that no linter knows."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "vpdr"
FILES = sorted(SOURCE.rglob("*.py"))
BANNED_NAMES = re.compile(r"(^|_)(utils?|helpers?|common|manager|handler|misc)(_|$)")
LONGEST_FILE, LONGEST_FUNCTION = 180, 30


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(path: Path):
    return [n for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def body_length(function: ast.FunctionDef) -> int:
    """Lines of the body without its docstring."""
    statements = function.body
    if ast.get_docstring(function) is not None:
        statements = statements[1:]
    return statements[-1].end_lineno - statements[0].lineno + 1 if statements else 0


def calls(path: Path, names: set[str]) -> list[int]:
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in names:
                found.append(node.lineno)
    return found


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_fits_its_room(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST_FILE
    assert not BANNED_NAMES.search(path.stem)
    assert ast.get_docstring(tree(path)), "a file has a door plate"
    for function in functions(path):
        assert body_length(function) <= LONGEST_FUNCTION, function.name


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_shortcuts(path: Path) -> None:
    nodes = list(ast.walk(tree(path)))
    assert not any(isinstance(node, ast.Assert) for node in nodes)
    assert not calls(path, {"hasattr"})
    defaults = [n for n in nodes if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "getattr"]
    assert all(len(n.args) == 2 for n in defaults), "a default value lives in its dataclass field"


def test_privacy_noise_is_drawn_in_one_file() -> None:
    """Random numbers are drawn in few places, and the noise of a release in one of them."""
    drawing = {"randn", "rand", "normal_", "bernoulli_", "urandom", "ndtri", "Laplace", "Normal"}
    allowed = {
        "mechanisms/noise.py": drawing,
        "attacks/chance.py": {"rand"},  # labels that chance could have drawn
        "attacks/fsh.py": {"randn"},  # where a reconstruction starts
        "audits/intervals.py": {"ndtri"},  # a quantile, not a draw
        "audits/pairs.py": {"randn"},  # planted data
        "audits/search.py": {"randn"},  # planted data
        "data/synthetic.py": {"randn"},
        "encoder/adapters.py": {"bernoulli_"},
        "engines/server.py": {"rand"},
        "frameworks/training.py": {"rand", "bernoulli_"},
        "frameworks/fedtgp.py": {"randn"},
    }
    for path in FILES:
        found = drawing - allowed.get(str(path.relative_to(SOURCE)), set())
        assert not calls(path, found), path
    assert calls(SOURCE / "mechanisms" / "noise.py", {"urandom"})


def test_noise_is_asked_for_in_the_mechanisms_only() -> None:
    """`normal` and `uniform` of a noise source."""
    rooms = {room(path) for path in FILES if calls(path, {"normal"})}
    assert rooms <= {"mechanisms", "data"}


def test_only_mechanisms_build_a_release() -> None:
    builders = {room(path) for path in FILES if calls(path, {"Release"})}
    assert builders == {"mechanisms"}


def test_sensitivities_are_stated_by_summarisers_only() -> None:
    homes = {room(p) for p in FILES for f in functions(p) if f.name == "sensitivity"}
    assert homes == {"prototypes"}


def test_no_plug_in_is_chosen_by_comparing_its_name() -> None:
    names = {
        "fedproto",
        "fedpcl",
        "fpl",
        "fedplvm",
        "fedtgp",
        "mpft",
        "igpp",
        "vpp",
        "dcr",
        "laplace",
        "oracle",
        "rapp",
        "kmeans",
        "finch",
    }
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Compare):
                constants = [c for c in [node.left, *node.comparators] if isinstance(c, ast.Constant)]
                assert not any(c.value in names for c in constants), f"{path}:{node.lineno}"
            elif isinstance(node, ast.Set) and room(path) != "mechanisms":  # a plug-in states its own facts
                members = [each for each in node.elts if isinstance(each, ast.Constant)]
                assert not any(each.value in names for each in members), f"{path}:{node.lineno}"


def test_each_cited_equation_is_in_the_paper_map() -> None:
    mapped = (ROOT / "docs" / "paper_map.md").read_text()
    cited = {m for p in FILES for m in re.findall(r"Eq\. (\d+)", p.read_text())}
    missing = {number for number in cited if not re.search(rf"Eq\. {number}\b", mapped)}
    assert not missing


def test_the_project_speaks_of_itself_alone() -> None:
    banned = re.compile(r"/(work|root|tmp)/[a-z]|issue #?\d|\bsession \d", re.IGNORECASE)
    for path in [*FILES, *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "Makefile"]:
        assert not banned.search(path.read_text()), path
