"""The record of a run, its privacy statement, and the directory that holds them; docs/record.md has every field."""

import csv
import platform
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vpdr import io
from vpdr.config import RunConfig, renames, rules
from vpdr.config.load import stored_plugins
from vpdr.data import BENCHMARK_SPECS, OWN_DATA, DatasetDescription
from vpdr.data.benchmark import Split, write_split
from vpdr.privacy import Adjacency, EncoderKind, GuaranteeLevel, Ledger, NoiseOrigin, accountants, guarantee
from vpdr.privacy.ledger_file import FileBackedLedger, encode_ledger
from vpdr.registry import loaded_plugins
from vpdr.types import Int, Prototypes
from vpdr.validation import DamagedFile, InvalidInput

UPLOADS_DIR, RECONSTRUCTIONS_DIR = "uploads", "attacks"
NOT_RELEASED = "not released"
_ENCODER_DESCRIPTIONS = {str(kind): f"{kind} encoder" for kind in EncoderKind} | {
    str(EncoderKind.DP_TRAINED): "personal encoder (its private training is part of the epsilon)"
}
Measurements = Mapping[str, float | None]  # by name; None where a file has no finite number


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientRound:
    """The metrics of one client after one round."""

    present: bool  # whether it took part
    losses: Measurements
    accuracy: Mapping[str, Measurements]  # by scope and predictor
    features: Measurements
    release: Measurements
    epsilon: float | None  # spent so far; None if unbounded
    seconds: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundRecord:
    """One round of a run."""

    round: int
    clients: Mapping[str, ClientRound]
    seconds: Mapping[str, float]  # of the server


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalAccuracy:
    """The accuracy of one predictor after the last round: by client, mean, sample standard deviation."""

    clients: Measurements
    average: float | None
    std: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivacyStatement:
    """What the guarantee of a run covers: its terms, what the worst client spent, its level and its caveats."""

    sentence: str
    level: str
    expected_level: str
    unit: str
    adjacency: str
    encoder: str
    counts: str
    accountant: str
    events: Mapping[str, int]
    epsilon_budget: float
    epsilon_spent: float | None
    delta: float
    noise: str
    releases: Mapping[str, int]
    training_steps: Mapping[str, int] | None = None  # absent in older records
    dataset: str | None = None  # which rows are protected; absent in older records
    not_covered: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackMetric:
    """A metric of an attack over rounds, beside its value under chance."""

    mean: float | None
    std: float | None
    null: float | None
    corrected: float | None  # mean - null
    low: float | None = None  # the interval of `corrected`
    high: float | None = None
    note: str | None = None


AttackMetrics = Mapping[str, AttackMetric]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackedRound:
    """The metrics of an attack in one round: as means over clients, and of each client."""

    round: int
    targets: int | None = None  # of a reconstruction
    steps: float | None = None
    mean: Mapping[str, Mapping[str, float]]
    clients: Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class StrongerAdversary:
    """The membership metrics of an adversary with more knowledge."""

    summary: AttackMetrics
    pooled: AttackMetrics  # all classes of a client in one ranking
    roc: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackResult:
    """The result of one attack on a run."""

    phi: str  # the adversary's encoder
    space: str | None = None  # of a reconstruction
    steps: int | None = None
    rounds: tuple[AttackedRound, ...]
    summary: AttackMetrics
    pooled: AttackMetrics | None = None  # this and the next three are of membership attacks
    roc: tuple[float, ...] | None = None
    stronger: Mapping[str, StrongerAdversary] | None = None
    non_members: Mapping[str, int] | None = None
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackReport:
    """The content of `attacks.json`: attacks on a finished run, by kind."""

    schema: str = "vpdr-attacks"
    version: int = 1
    identity: str
    attacks: Mapping[str, AttackResult]


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """The messages of a run over Flower, and which clients were missing."""

    engine: str = "flower"
    run: str
    messages: tuple[Mapping[str, Any], ...]
    missing: int
    dropped: int
    turned_away: tuple[str, ...]
    too_late: tuple[str, ...] = ()  # absent in older records


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """The record of a finished run; docs/record.md explains the fields, which are the keys of `record.json`."""

    schema: str = "vpdr-record"
    version: int = 1
    name: str
    title: str | None = None  # data, framework, mechanism, regulariser and budget; absent in older records
    identity: str
    seed: int
    plan: Mapping[str, Mapping[str, Any]]  # section -> setting -> value, as `RunConfig.to_dict` returns them
    clients: tuple[str, ...]
    data: DatasetDescription | None = None  # only of the user's own data
    rounds: tuple[RoundRecord, ...]
    final: Mapping[str, Mapping[str, FinalAccuracy]]  # by scope and predictor
    privacy: PrivacyStatement
    ledgers: Mapping[str, Mapping[str, Any]]  # by client, as `Ledger.state_dict` returns them
    versions: Mapping[str, str]
    wall_seconds: float
    attacks: Mapping[str, AttackResult] | None = None
    exchange: Exchange | None = None


def finished_record(
    config: RunConfig,
    rounds: Sequence[RoundRecord],
    ledgers: Sequence[Ledger],
    wall_seconds: float,
    data: DatasetDescription | None = None,
) -> RunRecord:
    """The record of a finished run, from one record per round and one ledger per client."""
    return RunRecord(
        name=config.run.name,
        title=rules.run_title([config]),
        identity=config.config_hash,
        seed=config.run.seed,
        plan=config.to_dict(),
        clients=tuple(ledger.client for ledger in ledgers),
        data=data,
        rounds=tuple(rounds),
        final=final_accuracies(rounds[-1]) if rounds else {},
        privacy=privacy_statement(config, ledgers),
        ledgers={ledger.client: ledger.state_dict() for ledger in ledgers},
        versions={
            "vpdr": metadata.version("vpdr"),
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": str(np.__version__),
            "machine": f"{platform.system()} {platform.machine()}",
            **{f"plug-in {each.path.name}": f"SHA-256 {each.digest}" for each in loaded_plugins()},
        },
        wall_seconds=wall_seconds,
    )


def final_accuracies(last_round: RoundRecord) -> dict[str, dict[str, FinalAccuracy]]:
    """The accuracies of the last round by scope and predictor, with mean and deviation over clients."""
    accuracies = {name: client.accuracy for name, client in last_round.clients.items()}
    scopes = dict.fromkeys(scope for by_scope in accuracies.values() for scope in by_scope)
    final: dict[str, dict[str, FinalAccuracy]] = {}
    for scope in scopes:
        by_client = {client: by_scope.get(scope, {}) for client, by_scope in accuracies.items()}
        predictors = sorted({predictor for values in by_client.values() for predictor in values})
        final[scope] = {
            predictor: final_accuracy({client: values.get(predictor) for client, values in by_client.items()})
            for predictor in predictors
        }
    return final


def final_accuracy(values: Measurements) -> FinalAccuracy:
    """Values by client, their unweighted mean and their sample standard deviation."""
    known = [value for value in values.values() if value is not None and value == value]
    return FinalAccuracy(
        clients=values,
        average=statistics.fmean(known) if known else None,
        std=statistics.stdev(known) if len(known) > 1 else None,
    )


def privacy_statement(config: RunConfig, ledgers: Sequence[Ledger]) -> PrivacyStatement:
    """The privacy statement of a run with these ledgers."""
    levels = list(GuaranteeLevel)
    entries = [entry for ledger in ledgers for entry in ledger.entries]
    releases = [entry for entry in entries if entry.is_release]
    level = max((ledger.level for ledger in ledgers), key=levels.index, default=GuaranteeLevel.PROVED)
    events = Counter(accountants.event_to_dict(event)["kind"] for entry in entries for event in entry.receipt.events)
    counts = " and ".join(sorted({str(entry.receipt.terms.counts) for entry in releases})) or NOT_RELEASED
    statement = PrivacyStatement(
        sentence="",
        level=str(level if releases else GuaranteeLevel.PROVED),
        expected_level=str(rules.guarantee_level(config)),
        unit="one sample of one client, against everybody else",
        dataset=protected_dataset(config),
        adjacency=config.budget.adjacency,
        encoder=str(rules.release_encoder(config)),
        counts=counts,
        accountant=config.budget.accountant,
        events={str(kind): count for kind, count in events.items()},
        epsilon_budget=config.budget.epsilon,
        epsilon_spent=max((ledger.epsilon_spent for ledger in ledgers), default=0.0),
        delta=config.budget.delta,
        noise=config.release.noise,
        releases={ledger.client: len(ledger.releases) for ledger in ledgers},
        training_steps={ledger.client: ledger.training_steps for ledger in ledgers},
        not_covered=tuple(_caveats(config, level, counts, [entry.receipt.terms for entry in entries])),
    )
    return replace(statement, sentence=_describe_statement(statement, bool(releases)))


def protected_dataset(config: RunConfig) -> str:
    """Which rows of a client are the dataset of the guarantee: all, or those that a split left for training."""
    section = config.benchmark
    if section.kind not in rules.SYNTHETIC_BENCHMARKS and not section.manifest:
        if config.budget.adjacency == Adjacency.REPLACE_SAME_LABEL:
            return "all rows of the client, since they are split by their labels, which are public"
        source = OWN_DATA.get(section.kind) or BENCHMARK_SPECS.get(section.kind)
        has_places = source is None or source.has_places
        is_by_content = config.budget.adjacency == Adjacency.ADD_REMOVE
        if rules.assignment(config) == "sample_hash" and (has_places or is_by_content):
            return "all rows of the client, since each is assigned to training or test by itself"
    return "the training rows after the split"


def _describe_statement(statement: PrivacyStatement, released: bool) -> str:
    if not released:
        return "nothing was released, so nothing can be learnt from it"
    if statement.level == GuaranteeLevel.NONE:
        return "not private: prototypes were released as they are"
    return (
        f"({statement.epsilon_spent:.4g}, {statement.delta:g})-DP per client for "
        f"{statement.adjacency}, {_ENCODER_DESCRIPTIONS[statement.encoder]}, "
        f"{statement.counts} counts, {statement.accountant} accountant: {statement.level}"
        f"{'' if statement.noise == NoiseOrigin.SYSTEM else ', simulated (the noise comes from the seed)'}"
    )


def _caveats(
    config: RunConfig, level: GuaranteeLevel, counts: str, terms: Sequence[guarantee.GuaranteeTerms]
) -> list[str]:
    """What the numbers do not include; nothing where no guarantee is claimed."""
    if counts == NOT_RELEASED or level is GuaranteeLevel.NONE:
        return []
    caveats = ["settings such as the clip norm may have been chosen by looking at results"]
    if config.release.noise == NoiseOrigin.SEEDED:
        caveats.insert(0, "the noise is reproducible from the seed: this is a simulation, not a private run")
    if any(each.arithmetic is guarantee.Arithmetic.FLOATING for each in terms):
        caveats.append("statistics and noise are in floating point, which the proof takes for real numbers")
    if any(encoder is EncoderKind.PERSONAL for encoder in (rules.release_encoder(config), *(e.encoder for e in terms))):
        caveats.append("the encoder was trained on the private samples between releases, without accounting")
    section = config.benchmark
    if section.encoder == "public":
        caveats.append("that the encoder of the features is public is the user's declaration, which nothing checks")
    is_own = section.kind in rules.OWN_KINDS and config.budget.adjacency != Adjacency.REPLACE_SAME_LABEL
    if is_own and not section.class_names:
        caveats.append("which classes there are was read from the private labels; benchmark.class_names declares them")
    if "public" in counts:
        caveats.append("class counts and which classes a client has are treated as public")
    if level is GuaranteeLevel.AS_PUBLISHED:
        caveats.append("the sensitivity of clusters is the paper's claim; counter-examples are known")
    if config.weights.kind != "uniform":
        caveats.append(f"weights by {config.weights.kind}: the sizes are declared public")
    return caveats


class RunDir:
    """The files of one run; each is written whole or not at all. The directory need not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.record_path = self.path / "record.json"
        self.checkpoint_path = self.path / "checkpoint.pt"
        self.ledgers_dir = self.path / "ledgers"
        self.failure_path = self.path / "failure.txt"  # why the run failed; removed when it succeeds

    def checkpoint_to_resume(self, config: RunConfig, *, resume: bool) -> dict[str, Any] | None:
        """The checkpoint to continue from, if any; InvalidInput if there is a run and `resume` is False."""
        if not resume:
            if self.record_path.exists() or self.checkpoint_path.exists():
                raise InvalidInput(
                    f"{self.path} already holds a run; add --resume (resume=True), or choose another directory"
                )
            return None
        if not self.checkpoint_path.exists():
            return None
        content = io.read_with_digest(self.checkpoint_path)
        if content is None:
            raise DamagedFile(f"{self.checkpoint_path} is damaged; remove the folder and run again")
        state: dict[str, Any] = torch.load(BytesIO(content), weights_only=True)
        if state["identity"] != config.config_hash:
            raise InvalidInput(
                f"{self.checkpoint_path} belongs to another plan "
                f"({state['identity']}, not {config.config_hash}); "
                "resume with the settings in plan.toml beside it, or choose another directory"
            )
        return state

    def create(self, config: RunConfig, split: Split | None = None) -> None:
        """Make the directory, and write the config and the split of the data."""
        try:
            self.ledgers_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise io.write_error(self.path, error) from error
        io.write_atomically(self.path / "plan.toml", io.dump_toml({**config.to_plan(), **stored_plugins()}).encode())
        if split is not None:
            write_split(self.path / "split.json", split)

    def save_checkpoint(self, config: RunConfig, state: Mapping[str, Any], ledgers: Sequence[Ledger]) -> None:
        """Save all that is needed to continue, and the ledgers for people to read."""
        buffer = BytesIO()
        torch.save({"identity": config.config_hash, **state}, buffer)
        self.save_ledgers(ledgers)
        io.write_with_digest(self.checkpoint_path, buffer.getvalue())

    def read_finished(self, config: RunConfig) -> RunRecord:
        """The record of a finished run of this config; InvalidInput if there is none."""
        record = read_record(self.record_path)
        if record.identity != config.config_hash:
            raise InvalidInput(
                f"{self.record_path} belongs to another plan "
                f"({record.identity}, not {config.config_hash}); choose another directory"
            )
        return record

    def save_ledgers(self, ledgers: Sequence[Ledger]) -> None:
        """One file per client, for `vpdr ledger`; a file-backed ledger is on disk already."""
        for ledger in ledgers:
            if not isinstance(ledger, FileBackedLedger):
                io.write_atomically(self.ledgers_dir / f"{ledger.client}.json", encode_ledger(ledger), mode=0o600)

    def save_record(self, record: RunRecord) -> None:
        """Write the record, and the table of its rounds with one line per round and client."""
        rows = [
            {"round": each.round, "client": client, **flatten(asdict(metrics))}
            for each in record.rounds
            for client, metrics in each.clients.items()
        ]
        io.write_atomically(self.path / "rounds.csv", rows_as_csv(rows).encode())
        io.write_atomically(self.record_path, io.json_bytes(record), mode=file_mode(record))


def file_mode(*records: RunRecord) -> int:
    """The mode of files made from these records: results of attacks on samples are for the owner only."""
    return 0o600 if any(record.attacks for record in records) else 0o666


def read_record(path: Path) -> RunRecord:
    """A record from its file, with its settings in the present spelling."""
    content = io.read_json(path)
    if isinstance(content, dict) and isinstance(content.get("plan"), dict):
        content["plan"] = renames.rename_settings(content["plan"])
    return io.from_json(RunRecord, content, str(path))


def rows_as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, with a column for every name that one of them has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, with keys such as `section.key`."""
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


class UploadStore:
    """What the server saw: one file per round, written before the server aggregates.

    A round that is repeated after a crash has several files: uploads before the crash were released and
    charged, so they are kept. The last file is what the run continued with.
    """

    def __init__(self, run_dir: Path) -> None:
        self.path = Path(run_dir) / UPLOADS_DIR

    def save(self, round: int, uploads: Mapping[str, Prototypes]) -> None:
        """Write the uploads of a round, if any, beside those of an earlier attempt unless they are equal."""
        if not uploads:
            return
        arrays: dict[str, np.ndarray] = {"clients": np.array(list(uploads), dtype=np.str_)}
        for index, upload in enumerate(uploads.values()):
            arrays |= {f"{index}.{name}": array.numpy() for name, array in upload.to_arrays().items()}
        buffer = BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        content = buffer.getvalue()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            earlier = self._files(round)
            if earlier and earlier[-1].read_bytes() == content:
                return
        except OSError as error:
            raise io.write_error(self.path, error) from error
        name = f"round-{round:04d}-again-{len(earlier)}.npz" if earlier else f"round-{round:04d}.npz"
        io.write_atomically(self.path / name, content, mode=0o600)

    def rounds(self) -> tuple[int, ...]:
        """The rounds that were saved."""
        return tuple(sorted({int(path.stem.split("-")[1]) for path in self.path.glob("round-*.npz")}))

    def load(self, round: int) -> dict[str, Prototypes]:
        """The uploads of a round by client, from the last attempt."""
        path = (self._files(round) or [self.path / f"round-{round:04d}.npz"])[-1]
        try:
            with np.load(path, allow_pickle=False) as stored:
                arrays = {name: torch.from_numpy(stored[name]) for name in stored.files if name != "clients"}
                clients = [str(name) for name in stored["clients"]]
        except FileNotFoundError as error:
            raise InvalidInput(f"{path} is missing; run the plan again with its uploads kept") from error
        except (OSError, ValueError, KeyError) as error:
            raise DamagedFile(f"{path} is not a whole file of uploads; run the plan again") from error
        prefixes = {client: f"{index}." for index, client in enumerate(clients)}
        return {
            client: Prototypes.from_arrays(
                {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
            )
            for client, prefix in prefixes.items()
        }

    def _files(self, round: int) -> list[Path]:
        first = self.path / f"round-{round:04d}.npz"
        again = self.path.glob(f"{first.stem}-again-*.npz")
        ordered = sorted(again, key=lambda path: int(path.stem.rsplit("-", 1)[1]))
        return [first, *ordered] if first.exists() else ordered


class ReconstructionStore:
    """Reconstructed inputs: one file per client and round, and one contact sheet of images per round."""

    def __init__(self, run_dir: Path) -> None:
        self.path = Path(run_dir) / RECONSTRUCTIONS_DIR

    def save(self, round: int, client: str, labels: Int[np.ndarray, " p"], inputs: np.ndarray, *, images: bool) -> None:
        """Save the reconstructions of one client in one round; images are [p, 3, height, width] in [0, 1].

        After images, the contact sheet of the round is drawn again: a row per client, a column per class.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise io.write_error(self.path, error) from error
        if images:
            inputs = (inputs.transpose(0, 2, 3, 1) * 255).round().clip(0, 255).astype(np.uint8)
        buffer = BytesIO()
        arrays = {"inputs": inputs, "labels": labels, "client": np.array(client)}
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        name = f"fsh-round-{round:04d}"
        io.write_atomically(self.path / f"{name}-{client}.npz", buffer.getvalue(), mode=0o600)
        if not images:
            return
        from PIL import Image

        clients = []
        for path in sorted(self.path.glob(f"{name}-*.npz")):
            with np.load(path, allow_pickle=False) as stored:
                clients.append((stored["labels"], stored["inputs"]))
        classes = sorted({int(label) for client_labels, _ in clients for label in client_labels})
        side = clients[0][1].shape[1]
        step = side + 2  # pixels between two images
        sheet = np.full((len(clients) * step, len(classes) * step, 3), 255, dtype=np.uint8)
        for row, (client_labels, client_images) in enumerate(clients):
            for label, image in zip(client_labels, client_images, strict=True):
                column = classes.index(int(label))
                sheet[row * step : row * step + side, column * step : column * step + side] = image
        buffer = BytesIO()
        Image.fromarray(sheet).save(buffer, format="PNG")
        io.write_atomically(self.path / f"{name}.png", buffer.getvalue(), mode=0o600)

    def contact_sheets(self) -> list[Path]:
        """The contact sheets by round."""
        return sorted(self.path.glob("fsh-round-*.png"))
