"""Rules of the code base that no linter knows, one test a rule."""

import ast
import builtins
import dis
import importlib
import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import CodeType

import vpdr
from vpdr.mechanisms.base import Mechanism, NoiseSource
from vpdr.prototypes import Summariser
from vpdr.regulariser import RegulariserConfig

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "vpdr"
TREES = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
TEMPLATES = {path for path in TREES if "template" in path.parts}  # copied into users' folders, not imported
MODULES = [path for path in TREES if path.name != "__init__.py" and path not in TEMPLATES]
METAPHORS = [
    "heard",
    "told",
    "ears",
    "voice",
    "errand",
    "purse",
    "home",
    "seat",
    "hall",
    "wish",
    "company",
    "glimpse",
    "sleep",
    "woken",
    "usual",
]
PLUG_INS = {
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


def name_of(path: Path) -> str:
    """A file as rules name it: relative to the package."""
    return path.relative_to(SOURCE).as_posix()


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def nodes(kind: type | tuple[type, ...]):
    """All nodes of a kind, with their files."""
    return [(path, node) for path, tree in TREES.items() for node in ast.walk(tree) if isinstance(node, kind)]


def calls(names: set[str]) -> dict[str, set[str]]:
    """Which of these functions each file calls, by whatever object they are called on."""
    callers: dict[str, set[str]] = defaultdict(set)
    for path, node in nodes(ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in names:
            callers[name_of(path)].add(name)
    return callers


def imported_modules(path: Path) -> set[str]:
    """The vpdr modules that a file imports, as dotted names."""
    modules = set()
    known = {dotted(each) for each in TREES}
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vpdr"):
            modules.add(node.module)
            modules |= {f"{node.module}.{alias.name}" for alias in node.names} & known
    return modules


def test_every_file_says_what_it_is_about() -> None:
    assert [name_of(path) for path, tree in TREES.items() if not ast.get_docstring(tree)] == []


def test_no_file_has_a_name_that_says_nothing() -> None:
    vague = re.compile(r"(^|_)(utils?|helpers?|manager|handler|misc)(_|$)")
    assert [name_of(path) for path in TREES if vague.search(path.stem)] == []


def test_no_file_is_longer_than_a_subject() -> None:
    assert [name_of(path) for path in TREES if len(path.read_text().splitlines()) > 700] == []


# what the library had after its redesign, and what each part added since may take
LINES = {
    "the redesigned library": 23_000,
    "exact noise, a chained ledger and sealed releases": 1_900,
    "settings that count, own data, encoders and methods": 3_400,
}


def test_the_package_stays_small() -> None:
    lines = [line for path in TREES for line in path.read_text().splitlines()]
    assert len(MODULES) <= 140
    assert len(lines) <= sum(LINES.values())
    imports = sum(node.end_lineno - node.lineno + 1 for _, node in nodes((ast.Import, ast.ImportFrom)))
    assert imports <= 0.05 * len(lines)


def test_tests_mirror_the_source() -> None:
    """`tests/unit/<package>/test_<module>[_<subject>].py`, or `test_registry.py` for the registry of a package."""
    unit, strangers = ROOT / "tests" / "unit", []
    for path in unit.rglob("test_*.py"):
        package = SOURCE / path.parent.relative_to(unit)
        modules = {each.stem for each in package.glob("*.py")} | {"registry"} if package.is_dir() else {package.name}
        name = path.stem.removeprefix("test_")
        if not any(name == module or name.startswith(f"{module}_") for module in modules):
            strangers.append(path.relative_to(unit).as_posix())
    assert strangers == []


def test_no_fragment_of_another_file() -> None:
    """A short module that one other module of its package imports belongs into that module."""
    importers: dict[str, set[Path]] = defaultdict(set)
    for path in TREES:
        for module in imported_modules(path):
            importers[module].add(path)
    plug_ins = {"frameworks", "data"}  # one file a framework, one file a dataset
    fragments = []
    for path in MODULES:
        inside = {each for each in importers[dotted(path)] if each.parent == path.parent and each != path}
        others = {each for each in inside if each.name != "__init__.py"}
        short = len(path.read_text().splitlines()) < 60
        if short and path.parent != SOURCE and len(others) == 1 and package(path) not in plug_ins:
            fragments.append(name_of(path))
    assert fragments == []


def test_a_class_name_means_one_thing() -> None:
    names = Counter(node.name for _, node in nodes(ast.ClassDef) if not node.name.startswith("_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_package_hides_a_module_behind_a_name_that_it_exports() -> None:
    """After `from vpdr.x.build import build` in `vpdr.x`, nobody can reach the module `vpdr.x.build`."""
    hidden = [
        f"{name_of(path)}: {alias.asname or alias.name}"
        for path, node in nodes(ast.ImportFrom)
        if path.name == "__init__.py" and (node.module or "").startswith("vpdr")
        for alias in node.names
        if (path.parent / f"{alias.asname or alias.name}.py").exists() and node.module != dotted(path)
    ]
    assert hidden == []


def test_identifiers_are_no_metaphors() -> None:
    banned = re.compile(rf"(^|_)({'|'.join(METAPHORS)})s?(_|$)", re.IGNORECASE)
    used = {
        f"{name_of(path)}: {name}"
        for path, node in nodes((ast.Name, ast.FunctionDef, ast.ClassDef, ast.arg, ast.Attribute))
        for name in (getattr(node, field, None) for field in ("id", "name", "arg", "attr"))
        if name and banned.search(name)
    }
    assert (
        sorted(used - {f"{name_of(path)}: {name}" for path in TREES for name in ("home", "sleep")}) == []
    )  # Path.home, time.sleep


def test_every_global_name_is_defined() -> None:
    """Shapes in annotations look like names to linters, so theirs are switched off; this reads the bytecode."""
    undefined = []
    for path in set(MODULES) - {SOURCE / "__main__.py"}:
        module = importlib.import_module(dotted(path))
        codes = [compile(path.read_text(), str(path), "exec")]
        while codes:
            code = codes.pop()
            codes += [each for each in code.co_consts if isinstance(each, CodeType)]
            used = {op.argval for op in dis.get_instructions(code) if op.opname == "LOAD_GLOBAL"}
            undefined += [f"{name_of(path)}: {name}" for name in used if name not in vars(module) | vars(builtins)]
    assert undefined == []


def documented_arguments(text: str) -> set[str]:
    """The names before the colons of an Args section; several may share a line."""
    section = text.partition("Args:\n")[2].split("\n\n")[0]
    return {name.strip() for line in section.splitlines() for name in line.partition(":")[0].split(",")}


def missing_sections(function: Callable[..., object], text: str) -> list[str]:
    """The arguments that Args lacks, and Returns where a function returns something."""
    signature = inspect.signature(function)
    names = {name for name in signature.parameters if name != "self" and not name.startswith("_")}
    missing = sorted(names - documented_arguments(text))
    returns = not inspect.isclass(function) and signature.return_annotation not in (None, "None")
    return [*missing, "Returns"] if returns and "Returns:" not in text else missing


def test_the_public_api_is_documented() -> None:
    """What is exported names each argument in Args, has Returns where it returns something, and an example.

    The examples are run by the doctests.
    """
    missing = {}
    for name in vpdr.__all__:
        exported = getattr(vpdr, name)
        text = inspect.getdoc(exported) or ""
        assert text, name
        if inspect.isclass(exported) and issubclass(exported, Exception | Enum):
            continue
        assert ">>>" in text, name
        if inspect.isclass(exported) or inspect.isfunction(exported):
            missing[name] = missing_sections(exported, text)
    assert {name: sections for name, sections in missing.items() if sections} == {}


def test_the_methods_of_the_public_api_are_documented() -> None:
    """A method has a docstring, or the protocol that it implements has it; an Args section names all arguments."""
    protocols = (Mechanism, NoiseSource, Summariser, RegulariserConfig)
    explained = {name for protocol in protocols for name, each in vars(protocol).items() if inspect.getdoc(each)}
    missing = {}
    for exported in {getattr(vpdr, name) for name in vpdr.__all__ if inspect.isclass(getattr(vpdr, name))}:
        for name, method in inspect.getmembers(exported):
            member = inspect.getattr_static(exported, name)
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if name.startswith("_") or not (inspect.isfunction(plain) or isinstance(plain, property)):
                continue
            text = inspect.getdoc(plain) or ""
            if not text and name not in explained:
                missing[f"{exported.__name__}.{name}"] = ["docstring"]
            elif "Args:" in text:
                missing[f"{exported.__name__}.{name}"] = missing_sections(method, text)
    for name in ("from_config", "receipt_for", "release"):  # said once, for all mechanisms
        method = getattr(Mechanism, name)
        missing[f"Mechanism.{name}"] = missing_sections(method, inspect.getdoc(method) or "")
    assert {name: sections for name, sections in missing.items() if sections} == {}


def test_no_assertions_and_no_guessed_attributes_in_the_package() -> None:
    assert [f"{name_of(path)}:{node.lineno}" for path, node in nodes(ast.Assert)] == []
    assert not calls({"hasattr"})
    defaults = [
        f"{name_of(path)}:{node.lineno}"
        for path, node in nodes(ast.Call)
        if getattr(node.func, "id", "") == "getattr" and len(node.args) > 2
    ]
    assert defaults == []  # a default value lives in its dataclass field


def test_random_numbers_are_drawn_in_few_places() -> None:
    """The noise of a release is drawn in one of them, by the two noise sources alone."""
    drawing = {"randn", "rand", "normal_", "bernoulli_", "urandom", "ndtri", "Laplace", "Normal"}
    allowed = {
        "mechanisms/base.py": {"randn", "rand"},  # of simulations
        "audits/selftest.py": {"urandom"},  # bits whose decisions are checked
        "attacks/membership.py": {"rand"},  # labels that chance could have drawn
        "attacks/inversion.py": {"randn"},  # where a reconstruction starts
        "audits/statistics.py": {"ndtri"},  # a quantile, not a draw
        "audits/target.py": {"randn"},  # planted data
        "data/quickstart.py": {"randn"},
        "encoder/personal.py": {"bernoulli_"},
        "federation/builder.py": {"rand"},
        "frameworks/base.py": {"rand", "bernoulli_"},
        "frameworks/fedtgp.py": {"randn"},
    }
    found = {path: names - allowed.get(path, set()) for path, names in calls(drawing).items()}
    assert {path: names for path, names in found.items() if names} == {}
    sources = {
        node.name
        for node in ast.walk(TREES[SOURCE / "mechanisms" / "base.py"])
        if isinstance(node, ast.ClassDef)
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in drawing
    }
    assert sources <= {"SystemNoise", "SeededNoise"}


def test_noise_is_asked_for_in_the_mechanisms_only() -> None:
    """Beside them, the self-test checks its distribution; added to sums it is in one function."""
    assert {path.split("/")[0] for path in calls({"rounded_gaussian", "discrete_laplace"})} == {"mechanisms", "audits"}
    assert set(calls({"add_noise"})) == {"mechanisms/base.py", "mechanisms/igpp.py", "mechanisms/vpp.py"}
    entropy = {name_of(path) for path, node in nodes(ast.Attribute) if node.attr == "urandom"}
    assert entropy == {"rng.py", "audits/selftest.py"}


def test_exact_arithmetic_is_stated_in_one_place() -> None:
    """By default a mechanism counts as inexact; one that says otherwise says so to `guarantee_terms`."""
    stated = {name_of(path) for path, node in nodes(ast.Attribute) if node.attr == "INTEGER"}
    assert stated == {"mechanisms/base.py"}


def test_only_mechanisms_build_a_release() -> None:
    assert {path.split("/")[0] for path in calls({"Release"})} == {"mechanisms"}
    assert not calls({"map_prototypes"})  # for mechanisms that are built on another one: there is none here


def test_only_the_ledger_makes_a_charge() -> None:
    assert calls({"Charge"}) == {"privacy/ledger.py": {"Charge"}}


def test_sensitivities_are_stated_by_summarisers_only() -> None:
    stated = {package(path) for path, node in nodes(ast.FunctionDef) if node.name == "sensitivity"}
    assert stated == {"prototypes"}


def test_summaries_and_results_are_dataclasses() -> None:
    """What is read by a string key is unknown to mypy: `Any` ends where JSON, TOML and checkpoints are read."""
    boundaries = {
        "attacks/base.py: CheckpointState = Mapping[str, Any]",  # what torch saves: tensors and plain data
        "reproduce/studies.py: ConfigData = Mapping[str, Any]",  # nested tables of TOML
    }
    found = {
        f"{name_of(path)}: {ast.unparse(statement).splitlines()[0]}"
        for path, tree in TREES.items()
        if package(path) in {"report", "reproduce", "attacks", "api"}
        for statement in tree.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Subscript) and ast.unparse(node) in {"Mapping[str, Any]", "dict[str, Any]"}
    }
    assert sorted(found - boundaries) == []


def test_no_plug_in_is_chosen_by_comparing_its_name() -> None:
    """A plug-in states its own traits; what others do must follow from them."""
    compared = [
        f"{name_of(path)}:{node.lineno}"
        for path, node in nodes((ast.Compare, ast.Set))
        if not (isinstance(node, ast.Set) and package(path) == "mechanisms")
        for part in ([node.left, *node.comparators] if isinstance(node, ast.Compare) else node.elts)
        if isinstance(part, ast.Constant) and part.value in PLUG_INS
    ]
    assert compared == []


ALWAYS_READ = {"run.rounds", "run.seed", "run.threads", "run.name", "run.is_evaluation_round", "model.dim"}
READS_OF_SETTINGS = {  # what a file may read besides: for a check, a message or a description, not to build a run
    "federation/run.py": {"release.noise"},
    "federation/builder.py": set(),
    "flower/client_app.py": {"model.family", "model.backbone"},  # whose position a policy declares
    "flower/mod.py": set(),
    "flower/server_app.py": {"train.is_private"},
    "flower/messages.py": set(),
    "client/client.py": set(),
}


def test_a_run_is_built_from_what_a_config_resolves_to() -> None:
    """Only `vpdr.config` reads sections: a setting that it does not read is refused as one without effect."""
    sections = set(vpdr.RunConfig.__dataclass_fields__)
    found: dict[str, set[str]] = defaultdict(set)
    for path, node in nodes(ast.Attribute):
        inner = node.value
        if isinstance(inner, ast.Attribute) and inner.attr in sections:
            owner = inner.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name in {"config", "run_config"}:
                found[name_of(path)].add(f"{inner.attr}.{node.attr}")
    for file, allowed in READS_OF_SETTINGS.items():
        assert found[file] <= ALWAYS_READ | allowed, file
    whole_sections = [
        f"{name_of(path)}:{node.lineno}"
        for path, node in nodes(ast.Assign)
        if package(path) == "federation" and isinstance(node.value, ast.Attribute) and node.value.attr in sections
        if getattr(node.value.value, "id", getattr(node.value.value, "attr", "")) == "config"
    ]
    assert whole_sections == []


def test_each_cited_equation_is_in_the_paper_map() -> None:
    mapped = (ROOT / "docs" / "paper_map.md").read_text()
    cited = {number for path in TREES for number in re.findall(r"Eq\. (\d+)", path.read_text())}
    assert {number for number in cited if not re.search(rf"Eq\. {number}\b", mapped)} == set()


def test_the_docs_name_files_that_exist() -> None:
    missing = {
        f"{page.name}: {match}"
        for page in [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
        if page.name not in {"CHANGELOG.md", "RESULTS.md"}
        for match in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)", page.read_text())
        if not (ROOT / match).exists() and not (SOURCE / match).exists() and not (SOURCE.parent / match).exists()
    }
    assert sorted(missing) == []


def names_in(path: Path) -> set[str]:
    """What a module defines or imports: functions, classes, constants, and `Class.member`."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
            fields = {
                each.target.id
                for each in ast.walk(node)
                if isinstance(each, ast.AnnAssign) and "id" in vars(each.target)
            }
            methods = {each.name for each in ast.walk(node) if isinstance(each, ast.FunctionDef)}
            names |= {f"{node.name}.{member}" for member in fields | methods if isinstance(node, ast.ClassDef)}
    return names


def test_the_docs_cite_code_and_tests_that_exist() -> None:
    """Citations are `module.py:name` and `test_name`."""
    tests = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    tests |= {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    missing = set()
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]:
        text = page.read_text()
        for file, name in set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py):([A-Za-z_.]+)`", text)):
            paths = [folder / file for folder in (SOURCE, SOURCE.parent, ROOT) if (folder / file).exists()]
            if not paths or name not in names_in(paths[0]):
                missing.add(f"{page.name}: {file}:{name}")
        for name in set(re.findall(r"`(test_\w{3,})`", text)) - tests:
            missing.add(f"{page.name}: {name}")
    assert sorted(missing) == []


def test_the_code_in_the_docs_imports_what_exists() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            imports = [
                node for node in ast.walk(ast.parse(inspect.cleandoc(block))) if isinstance(node, ast.ImportFrom)
            ]
            for node in imports:
                if (node.module or "").startswith("vpdr"):
                    module = importlib.import_module(node.module)
                    assert {alias.name for alias in node.names} <= set(dir(module)) | set(
                        module.__dict__.get("__all__", ())
                    ), page


def test_the_project_speaks_of_itself_alone() -> None:
    banned = re.compile(r"/(work|root|tmp)/[a-z]|issue #?\d|\bsession \d", re.IGNORECASE)
    pages = [*TREES, *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "Makefile"]
    assert [str(path) for path in pages if banned.search(path.read_text())] == []
