"""What a data owner keeps on its machine: the policy, the ledger of the dataset, saved runs and logs."""

import hashlib
import io
import json
import math
import os
import secrets
import stat
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from vpdr import privacy, validation
from vpdr.config import RunConfig, rules
from vpdr.data import OWN_DATA
from vpdr.data.benchmark import write_split
from vpdr.encoder.zoo import model_families, weights_for_policy
from vpdr.federation import load_clients
from vpdr.io import (
    dump_toml,
    exclusive_lock,
    json_safe,
    read_with_digest,
    write_atomically,
    write_error,
    write_with_digest,
)
from vpdr.mechanisms import MECHANISMS, NoiseAllocation
from vpdr.privacy import Adjacency, Budget, GuaranteeLevel
from vpdr.rng import Streams
from vpdr.types import no_progress
from vpdr.validation import DamagedFile, InvalidInput, VpdrError, check_known, coerce

METRICS_LEVELS = ("nothing", "accuracy", "everything")
ADAPTIVE_ACCOUNTANTS = ("exact", "rdp")  # valid when later noise depends on earlier releases
SPLIT_ACCOUNTANTS = {"exact"}  # valid only with two fixed parts of epsilon: docs/privacy.md, section 8
CONFIG_REL_SLACK = 1e-9  # for rounding; the ledger itself is stricter
LEDGER_REL_SLACK = 1e-12  # for the rounding of the sum of selections
MAX_SAVED_RUNS = 8  # older runs are deleted, so that a server cannot fill the disk
MAX_LINE_LENGTH, MAX_LOG_BYTES = 500, 10_000_000


class RefusalCode(StrEnum):
    """The reason of a refusal, as the server receives it.

    Guarantee: all but three codes depend on the policy, the configuration, the messages and the ledger only.
    `other-data` and `own-data` depend on the owner's source as a whole and are the same whatever a server
    sends. `failed` stands for unexpected errors, and is the only code that samples and a server's settings
    could decide together: training, evaluation, broadcasts and features, where such errors are known, do not
    end in it.
    """

    NO_POLICY = "no-policy"
    BAD_REQUEST = "bad-request"
    EPSILON = "epsilon"
    DELTA = "delta"
    MECHANISM = "mechanism"
    ADJACENCY = "adjacency"
    MIN_CLASS_COUNT = "min-class-count"
    ROUNDS = "rounds"
    GUARANTEE = "guarantee"
    SIMULATION = "simulation"
    BENCHMARK = "benchmark"
    DIVISION = "division"
    PLACE = "place"
    SELECTION = "selection"
    OTHER_DATA = "other-data"
    OWN_DATA = "own-data"
    LEDGER = "ledger"
    OTHER_PLAN = "other-plan"
    ROUND_ORDER = "round-order"
    BROADCAST = "broadcast"
    BUDGET = "budget"
    BUSY = "busy"
    NO_PRIVATE_RECORD = "no-private-record"
    FAILED = "failed"


class Refusal(VpdrError):
    """A request that the client refuses; only the code is sent, the text stays in the owner's log."""

    def __init__(self, code: RefusalCode, details: str = "") -> None:
        super().__init__(f"{code}: {details}" if details else str(code))
        self.code = code


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetPolicy:
    """The privacy budget of the dataset over all runs, and its accountant."""

    epsilon: float = 1.0
    delta: float = 1e-5
    accountant: str = "exact"
    selection: float = 0.0  # share of ε reserved for selections of coordinates
    adjacency: str = str(Adjacency.REPLACE_SAME_LABEL)

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        check_known("accountant", [self.accountant], privacy.ACCOUNTANTS)
        check_known("adjacency", [self.adjacency], list(Adjacency))
        validation.at_least_0_below_1(selection=self.selection)
        if self.selection and not self.is_split:
            raise InvalidInput(f"selection is for accountant exact, got {self.accountant}; leave it out")

    @property
    def is_split(self) -> bool:
        """Whether selections and Gaussian noise are charged to two fixed parts of ε."""
        return self.accountant in SPLIT_ACCOUNTANTS


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPolicy:
    """What a run may request."""

    mechanisms: tuple[str, ...] = field(
        default_factory=lambda: tuple(name for name, kind in MECHANISMS.items() if kind.traits.is_private)
    )
    rounds: int = 20
    guarantee: str = str(GuaranteeLevel.CONDITIONAL)  # the weakest level that is accepted
    min_class_count: int = 1  # smallest class whose mean may be released
    simulation: bool = False  # allow noise from the run's seed, which the server knows
    metrics: str = "nothing"  # metrics of private data sent without noise

    def __post_init__(self) -> None:
        check_known("mechanism", self.mechanisms, MECHANISMS)
        check_known("guarantee", [self.guarantee], list(GuaranteeLevel))
        validation.at_least(1, rounds=self.rounds, min_class_count=self.min_class_count)
        validation.one_of(METRICS_LEVELS, metrics=self.metrics)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataPolicy:
    """Where the samples are: a file of features, part of a benchmark, or (neither) supplied by an app."""

    features: str = ""  # an .npz of frozen features (x, y, or train_x, train_y, test_x, test_y), or a table of them
    folder: str = ""  # images, texts or a saved dataset of this client, as --data folder, texts and hf
    texts: str = ""
    hf: str = ""
    test_fraction: float = 0.2  # of samples that are not split: each is held out by itself, with a key of the owner's
    classes: int = 0  # number of classes of these data; public
    class_names: tuple[str, ...] = ()  # all classes in the order of all silos; public; empty: the numbers from 0
    place: int = -1  # position among all clients, from 0: selects the member of a model family; -1: unset
    benchmark: str = ""  # the only benchmark kind that a run may name
    settings: dict[str, Any] = field(default_factory=dict)  # of [benchmark]; they override the run's
    weights: str = ""  # of the backbone, a path on this machine
    device: str = "cpu"  # of the backbone, when its blocks are trained
    encoder: str = str(privacy.EncoderKind.PERSONAL)  # of given features: public, broadcast or personal

    def __post_init__(self) -> None:
        if len(self.own_sources) + bool(self.benchmark) > 1:
            kinds = ", ".join(f"data.{kind}" for kind in OWN_DATA)
            raise InvalidInput(f"give one of {kinds} (a path) or data.benchmark (a name), not both")
        if self.own_sources and not self.class_names:
            validation.at_least(1, classes=self.classes)
        validation.at_least(-1, place=self.place)
        validation.at_least_0_below_1(test_fraction=self.test_fraction)
        privacy.guarantee.declared_encoder(self.encoder)

    @property
    def own_sources(self) -> dict[str, str]:
        """The path of the client's own data by their kind; at most one."""
        paths = {kind: getattr(self, kind) for kind in OWN_DATA}
        return {kind: path for kind, path in paths.items() if path}

    @property
    def is_feature_file(self) -> bool:
        """Whether the data are arrays of features with numbers as labels, in one of the two fixed layouts."""
        return self.features.endswith(".npz") and not self.class_names


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """The policy of one client; nothing that a server sends can change it."""

    name: str
    budget: BudgetPolicy = field(default_factory=BudgetPolicy)
    allow: RunPolicy = field(default_factory=RunPolicy)
    data: DataPolicy = field(default_factory=DataPolicy)

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise InvalidInput(f"name must be a plain word, got {self.name!r}")
        if self.budget.accountant not in ADAPTIVE_ACCOUNTANTS and not self.allow.simulation:
            raise InvalidInput(
                f"accountant {self.budget.accountant} needs noise that is fixed before all releases, "
                f"and servers choose theirs run by run; choose one of {', '.join(ADAPTIVE_ACCOUNTANTS)}"
            )

    @property
    def needs_own_split(self) -> bool:
        """Whether labels are private, so that the split is the owner's: its own file, or sample by sample."""
        private_labels = self.budget.adjacency != Adjacency.REPLACE_SAME_LABEL
        return private_labels and self.data.benchmark not in {"", *rules.SYNTHETIC_BENCHMARKS}


_TABLES = {"budget": BudgetPolicy, "allow": RunPolicy, "data": DataPolicy}


def read_policy(path: Path) -> Policy:
    """Read a policy file; InvalidInput if it cannot be read, or holds an unknown or invalid entry."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}; every client needs a policy") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not valid TOML: {error}") from error
    try:
        check_known("entry", content, ["name", *_TABLES])
        tables = {key: _parse_table(key, content[key]) for key in _TABLES if key in content}
        return Policy(name=coerce("name", content.get("name", ""), str), **tables)
    except (InvalidInput, TypeError) as error:
        raise InvalidInput(f"{path}: {error}") from error


def _parse_table(name: str, content: object) -> Any:
    if not isinstance(content, Mapping):
        raise InvalidInput(f"{name} must be a table of settings, got {content!r}; write [{name}]")
    types: dict[str, Any] = {field.name: field.type for field in fields(_TABLES[name])}
    check_known(f"setting in [{name}]", content, types)
    values = {}
    for key, value in content.items():
        if types[key] != tuple[str, ...]:
            values[key] = coerce(f"{name}.{key}", value, types[key])
        elif isinstance(value, list) and all(isinstance(each, str) for each in value):
            values[key] = tuple(value)
        else:
            raise InvalidInput(f"{name}.{key} must be a list of names, got {value!r}")
    return _TABLES[name](**values)


def check_config_against_policy(policy: Policy, config: RunConfig) -> None:
    """Refuse a configuration that requests more than the policy allows, by its first violation; reads no data.

    Guarantee: a run that passes can spend at most the policy's (ε, δ) by its own calibration. The owner's
    ledger counts every release as well, so several such runs cannot exceed it together.
    """
    for code, violated in _violations(policy, config):
        if violated:
            raise Refusal(code, f"the run exceeds the policy of {policy.name}")
    family, data = config.model.family, policy.data
    if family and data.place < 0 and (data.own_sources or data.benchmark):  # features of an app have their own model
        members = model_families()[family].members
        if len(set(members)) > 1:
            details = f"family {family} has one model per position; set data.place in the policy"
            raise Refusal(RefusalCode.PLACE, details)


def _violations(policy: Policy, config: RunConfig) -> Iterator[tuple[RefusalCode, bool]]:
    allow, budget, levels = policy.allow, policy.budget, list(GuaranteeLevel)
    yield RefusalCode.ROUNDS, config.run.rounds > allow.rounds
    if policy.data.benchmark:
        yield RefusalCode.BENCHMARK, config.benchmark.kind != policy.data.benchmark
        settings = policy.data.settings
        by_labels = settings.get("skew", "domain") != "domain" or settings.get("per_domain", 1) != 1
        yield RefusalCode.DIVISION, policy.needs_own_split and by_labels and not settings.get("manifest")
    if not rules.uploads_prototypes(config):
        return  # nothing is released
    yield RefusalCode.MECHANISM, config.mechanism.kind not in allow.mechanisms
    level = rules.guarantee_level(config)
    yield RefusalCode.GUARANTEE, levels.index(level) > levels.index(GuaranteeLevel(allow.guarantee))
    yield RefusalCode.EPSILON, not config.budget.epsilon <= budget.epsilon
    if budget.is_split:
        reserved, selection = budget.selection * budget.epsilon, selection_cost(config)
        rest, others = budget.epsilon - reserved, config.budget.epsilon - selection
        yield RefusalCode.SELECTION, selection > reserved * (1 + CONFIG_REL_SLACK)
        yield RefusalCode.EPSILON, others > rest * (1 + CONFIG_REL_SLACK)
    yield RefusalCode.DELTA, not config.budget.delta <= budget.delta
    yield RefusalCode.ADJACENCY, config.budget.adjacency != budget.adjacency
    yield RefusalCode.SIMULATION, config.release.noise != privacy.NoiseOrigin.SYSTEM and not allow.simulation
    # with public counts, sums hide no count and cannot leave out small classes
    public_counts = config.budget.adjacency == Adjacency.REPLACE_SAME_LABEL
    yield RefusalCode.MIN_CLASS_COUNT, public_counts and config.release.min_count < allow.min_class_count


def selection_cost(config: RunConfig) -> float:
    """The ε of all selections of a run, which are pure events next to its Gaussian noise."""
    if not rules.mechanism_traits(config).has_selection:
        return 0.0
    num_selected = NoiseAllocation.from_fraction(config.model.dim, config.mechanism.keep).num_selected
    budget = Budget(config.budget.epsilon, config.budget.delta)
    pure = rules.selection_config(config).calibrate(budget, config.releases, num_selected).pure_events
    return pure.epsilon if pure else 0.0


class OwnerLedger(privacy.LedgerFile):
    """The ledger of the dataset, valid for servers that choose the noise of each run adaptively.

    Guarantee: where ε is split, all selections (pure events) stay within the part reserved for them and
    Gaussian noise within the rest. Then the total is (ε, δ)-DP even if later noise depends on earlier
    releases: a Gaussian privacy filter covers one part, and the pure part adds at most its own ε.
    """

    def __init__(
        self, path: Path, split_budget: Budget | None = None, selection_share: float = 0.0, *, run: str = ""
    ) -> None:
        super().__init__(path, run=run)
        self.split_budget, self.selection_share = split_budget, selection_share  # None: not split

    def charge(self, receipt: privacy.Receipt, *, round: int, mechanism: str = "") -> privacy.Charge:
        """Record the release on disk, if both parts and their sum allow it; otherwise nothing is recorded."""
        if self.split_budget is not None:
            events, budget = (*self.read().events, *receipt.events), self.split_budget
            reserved = self.selection_share * budget.epsilon * (1 + LEDGER_REL_SLACK)
            gaussian = tuple(event for event in events if isinstance(event, privacy.GaussianEvent))
            if math.fsum(privacy.accountants.pure_epsilons(events)) > reserved:
                raise privacy.BudgetExceeded(f"{self.path}: selections may spend at most epsilon {reserved:g}")
            if privacy.accountants.GdpAccountant().epsilon(gaussian, budget.delta) > budget.epsilon - reserved:
                message = f"{self.path}: epsilon {reserved:g} of the budget is for selections only"
                raise privacy.BudgetExceeded(message)
        return super().charge(receipt, round=round, mechanism=mechanism)

    def older_copy_refusal(self) -> Refusal:
        """The refusal for a file that lacks recorded releases."""
        return Refusal(RefusalCode.LEDGER, f"{self.path} lacks releases that were made: it is an older copy")


@dataclass(slots=True, kw_only=True)
class RunLedger(privacy.Ledger):
    """The ledger of one run; each release is also charged to the ledger of the dataset.

    Guarantee: nothing is released before it is in the owner's file, and the file's total never exceeds the
    policy's (ε, δ), for any number of runs and even if their saved state is lost.
    """

    owner_ledger: OwnerLedger

    def charge(self, receipt: privacy.Receipt, *, round: int, mechanism: str = "") -> privacy.Charge:
        """Check the budget of the run, charge the owner's ledger, then record the release."""
        self.check_charge(receipt, round=round)
        self.owner_ledger.charge(receipt, round=round, mechanism=mechanism)
        return privacy.Ledger.charge(self, receipt, round=round)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a run; the owner's file must hold all of its releases."""
        privacy.Ledger.load_state_dict(self, state)
        made, stored = (Counter(entry.content for entry in each.entries) for each in (self, self.owner_ledger.read()))
        if made - stored:
            raise self.owner_ledger.older_copy_refusal()


class NodeStore:
    """The directory of one dataset: readable by its owner only, every file written atomically.

    Guarantee: the ledger is bound to one dataset and one budget; neither a restart, a second run, nor the
    loss of a run's state gives budget back. A ledger missing from a directory in use is detected, and an
    older copy of it while a later run's state exists; the removal of all files is not.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path).resolve()

    def policy(self) -> Policy:
        """Read the policy; refused as `no-policy` if it cannot be read or others can write it."""
        file = self.path / "policy.toml"
        try:
            policy = read_policy(file)
        except InvalidInput as error:
            raise Refusal(RefusalCode.NO_POLICY, str(error)) from error
        if file.stat().st_mode & (stat.S_IWOTH | stat.S_IWGRP):
            raise Refusal(RefusalCode.NO_POLICY, f"others than its owner can write {file}; run chmod go-w on it")
        return policy

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the directory for one request; a second process is refused at once."""
        with ExitStack() as held:
            try:
                held.enter_context(exclusive_lock(self.path / "lock", blocking=False))
            except BlockingIOError as error:
                raise Refusal(RefusalCode.BUSY, "another process is working for this client") from error
            except OSError as error:
                raise write_error(self.path, error) from error
            yield

    def ledger(self, policy: Policy, run: str = "") -> OwnerLedger:
        """The ledger of the dataset, created once, before any other file here; entries name the run.

        It keeps its budget until the owner changes it, in the policy and with `vpdr ledger amend`.
        """
        file, budget = self.path / "ledger.json", policy.budget
        used = (self.path / "dataset.json").exists() or any((self.path / "runs").glob("*.pt"))
        if used and not file.exists():
            raise Refusal(RefusalCode.LEDGER, f"{file} is missing; restore it, or stop using this dataset")
        # only a policy that accepts runs without a guarantee has no limit
        unlimited = policy.allow.guarantee == GuaranteeLevel.NONE
        limit = None if unlimited else Budget(budget.epsilon, budget.delta)
        adjacency = Adjacency(budget.adjacency)
        ledger = privacy.Ledger(client=policy.name, budget=limit, accountant=budget.accountant, adjacency=adjacency)
        privacy.LedgerFile.open_or_create(file, ledger)
        return OwnerLedger(file, limit if budget.is_split else None, budget.selection, run=run)

    def bind_dataset(self, fingerprint: bytes) -> None:
        """Bind the directory to a dataset at first use; other data are refused afterwards."""
        file = self.path / "dataset.json"
        if not file.exists():
            key = secrets.token_bytes(32)
            binding = {"key": key.hex(), "seal": _keyed_hash(key, fingerprint)}
            write_atomically(file, json.dumps(binding).encode() + b"\n", mode=0o600)
            return
        try:
            binding = json.loads(file.read_bytes())
            digest = _keyed_hash(bytes.fromhex(binding["key"]), fingerprint)
            same = secrets.compare_digest(digest, binding["seal"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFile(f"{file} cannot be read: {error}") from error
        if not same:
            raise Refusal(RefusalCode.OTHER_DATA, f"{self.path} belongs to another dataset; use a new directory")

    def split_key(self) -> bytes:
        """The key by which the owner's samples are split one by one; drawn with the binding to the dataset."""
        try:
            key = bytes.fromhex(json.loads((self.path / "dataset.json").read_bytes())["key"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DamagedFile(f"{self.path / 'dataset.json'} cannot be read: {error}") from error
        return hashlib.blake2b(b"split", key=key, digest_size=32).digest()

    def load(self, run: str) -> dict[str, Any] | None:
        """Load the state of one run; None before its first message."""
        file = self._state_file(run)
        if not file.exists():
            return None
        content = read_with_digest(file)
        if content is None:
            raise DamagedFile(f"{file} is damaged; remove it to restart the personal model of this run")
        state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
        return state

    def save(self, run: str, state: Mapping[str, Any]) -> None:
        """Save the state of one run; only the latest `MAX_SAVED_RUNS` runs are kept."""
        buffer = io.BytesIO()
        torch.save(dict(state), buffer)
        file = self._state_file(run)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        write_with_digest(file, buffer.getvalue())
        states = sorted(file.parent.glob("*.pt"), key=lambda state: state.stat().st_mtime_ns)
        for old in states[:-MAX_SAVED_RUNS]:
            old.unlink(missing_ok=True)

    def _state_file(self, run: str) -> Path:
        return self.path / "runs" / f"{run}.pt"

    def log_error(self, message: str) -> None:
        """Append one line to the owner's log."""
        text = f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {' '.join(message.split())[:MAX_LINE_LENGTH]}\n"
        self._append("refusals.log", text)

    def append_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Record all metrics for the owner, including those that are not sent."""
        self._append("measured.jsonl", json.dumps(json_safe(metrics)) + "\n")

    def _append(self, name: str, line: str) -> None:
        descriptor = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
            if file.tell() < MAX_LOG_BYTES:
                file.write(line)


def _keyed_hash(key: bytes, fingerprint: bytes) -> str:
    """A keyed digest, so that the file alone does not identify the dataset."""
    return hashlib.blake2b(fingerprint, key=key, digest_size=32).hexdigest()


# Directories of simulated owners, whose policies allow exactly one run.


def node_dir_name(partition_id: int) -> str:
    """The directory name of a simulated node."""
    return f"node-{partition_id:03d}"


def create_simulated_nodes(config: RunConfig, root: Path) -> list[Path]:
    """A directory for each client of the run's benchmark; existing ones keep policy and ledger."""
    setups = load_clients(config, Streams(config.run.seed), no_progress)
    names, positions = sorted(setups.clients), list(setups.clients)
    node_dirs = [root / node_dir_name(index) for index in range(len(names))]
    for node_dir, name in zip(node_dirs, names, strict=True):
        try:
            node_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(node_dir, error) from error
        if (node_dir / "policy.toml").exists():
            continue
        manifest = config.benchmark.manifest
        if setups.split is not None and not manifest:  # a file that all simulated owners share
            if not (root / "manifest.json").exists():
                write_split(root / "manifest.json", setups.split)
            manifest = str(root / "manifest.json")
        text = dump_toml(_policy_for_run(config, name, positions.index(name), manifest))
        write_atomically(node_dir / "policy.toml", text.encode(), mode=0o600)
    return node_dirs


def _policy_for_run(config: RunConfig, name: str, position: int, manifest: str) -> dict[str, Any]:
    """The content of a policy file that allows this run, once."""
    budget = asdict(config.budget)
    del budget["require"]
    if config.budget.accountant in SPLIT_ACCOUNTANTS:
        budget["selection"] = selection_cost(config) / config.budget.epsilon
    # absolute paths, since nodes may have other working directories
    paths = {"root": config.benchmark.root, "manifest": manifest}
    paths = {  # a dataset on the hub has a name instead
        key: str(Path(path).expanduser().resolve()) if path and Path(path).expanduser().exists() else path
        for key, path in paths.items()
    }
    settings = asdict(config.benchmark)
    del settings["kind"]
    return {
        "name": name,
        "budget": budget,
        "allow": {
            "mechanisms": [config.mechanism.kind],
            "rounds": config.run.rounds,
            "guarantee": str(rules.guarantee_level(config)),
            "simulation": config.release.noise != privacy.NoiseOrigin.SYSTEM,
            "metrics": "everything",
        },
        "data": {
            "place": position,
            "benchmark": config.benchmark.kind,
            "settings": settings | paths,
            "weights": weights_for_policy(config.model.backbone, config.model.weights),
            "device": config.run.device,
        },
    }
