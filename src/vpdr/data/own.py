"""The user's own data: images in folders, tables of features or texts, Hugging Face datasets, arrays in memory."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from vpdr.data.benchmark import Indices, SplitConfig
from vpdr.data.images import EncodedImages, ImageArray, ImageFiles
from vpdr.data.spec import BenchmarkSpec, DomainSpec, ImageSource, IssueLog, RawDomain, files_digest, is_visible
from vpdr.data.tables import Columns, read_columns
from vpdr.io import cache_key
from vpdr.types import Bool, Float32, Tensor
from vpdr.validation import InvalidInput

# Names of columns that are recognised, in any case, the most likely first.
_LABELS = ("label", "labels", "y", "class", "target", "category")
_FEATURES = ("x", "features", "feature", "embedding", "embeddings")
_TEXTS = ("text", "content", "sentence")
_CLIENTS = ("client", "client_id", "domain")
_SPLITS = ("split", "part")
_PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
POOL_CLIENTS = 4  # that share samples without clients or domains of their own, unless benchmark.clients is set
_MAX_ABS_FEATURE = 1e15  # as everywhere: sums of squares stay finite
_REMEDY = "replace or remove it"
_MAX_NAMES_LISTED = 8  # in one line

ArrayLike: TypeAlias = Sequence[Any] | np.ndarray | Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetOptions:
    """How the user's data are read, where guessing fails; the settings of the same names in `[benchmark]`."""

    label_column: str = ""
    input_column: str = ""  # of the text, image or features; a pattern such as f* names several columns of features
    client_column: str = ""
    split_column: str = ""
    class_names: tuple[str, ...] = ()  # empty: those that occur, sorted
    client: str = ""  # all samples are this client's; empty: by column or folder


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetDescription:
    """What a record states about the user's own data."""

    modality: str
    class_names: tuple[str, ...]  # in the order of the labels
    dim: int | None = None  # of given features
    warnings: tuple[str, ...] = ()  # of the reader


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # private values never get into a log
class Dataset:
    """Samples of the user's with their labels, and the client and part of each where they are known. Private.

    Args:
        name: the kind of the data, as in `benchmark.kind`.
        content: images, texts, or the features of a frozen encoder.
        labels: indices into `class_names`.
        class_names: the names of the classes.
        clients: the client of each sample; None: the split draws them.
        is_test: whether each sample is for tests only; None: the split draws them.
        options: how the data were read.
        errors, warnings: what is wrong with them, and what the user should know.

    Guarantee: samples are changed by nothing but a common size of images.

    >>> dataset = Dataset.from_arrays(np.eye(4), ["cat", "dog", "cat", "dog"], client=["a", "a", "b", "b"])
    >>> dataset.class_names, dataset.modality, [domain.name for domain in dataset.to_spec().domains]
    (('cat', 'dog'), 'features', ['a', 'b'])
    """

    name: str
    content: ImageSource | tuple[str, ...] | Float32[np.ndarray, "n d"]
    labels: Indices
    class_names: tuple[str, ...]
    clients: tuple[str, ...] | None = None
    is_test: Bool[np.ndarray, " n"] | None = None
    options: DatasetOptions = DatasetOptions()
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_arrays(
        cls,
        x: Any,
        y: ArrayLike,
        *,
        client: ArrayLike | None = None,
        split: ArrayLike | None = None,
        class_names: Sequence[str] = (),
    ) -> "Dataset":
        """A dataset in memory, for `vpdr.build` and `vpdr.run`.

        Args:
            x: features [n, d], images of one size [n, h, w] or [n, h, w, 3] as bytes, or a list of texts.
            y: the label of each sample: names, or whole numbers.
            client: the client of each sample.
            split: train or test for each sample.
            class_names: all classes in their order; those that occur, sorted, if not given.

        Returns:
            The checked dataset.

        Raises:
            InvalidInput: lengths differ, features are not finite, or labels are missing.
        """
        texts = isinstance(x, list | tuple) and all(isinstance(each, str) for each in x)
        array = None if texts else np.asarray(x)
        content: Any = tuple(x) if array is None else array
        if array is not None and array.dtype == np.uint8 and array.ndim in (3, 4):
            content = ImageArray(array, cache_key(array.shape, array.tobytes()))
        elif array is not None and array.ndim != 2:
            raise InvalidInput(
                f"expected features [n, d], images [n, h, w, 3] as bytes or texts, got {array.dtype} of shape "
                f"{array.shape}; convert them"
            )
        given = {"y": y, "client": client, "split": split}
        columns = {key: np.asarray(column) for key, column in given.items() if column is not None}
        if {len(column) for column in columns.values()} != {len(content)}:
            sizes = ", ".join(f"{key} {len(column)}" for key, column in {"x": content, **columns}.items())
            raise InvalidInput(f"expected arrays of one length, got {sizes}; give one entry for each sample")
        if len(content) == 0:
            raise InvalidInput("expected samples, got none; give at least two classes")
        table, issues = Columns("arrays", columns), IssueLog(Path())
        options = DatasetOptions(class_names=tuple(class_names))
        dataset = _make_dataset("arrays", content, table, options, issues)
        if dataset.errors:
            more = f" (and {len(dataset.errors) - 1} more)" if len(dataset.errors) > 1 else ""
            raise InvalidInput(dataset.errors[0] + more)
        return dataset

    @property
    def modality(self) -> str:
        """`image`, `text` or `features`."""
        kinds = {tuple: "text", np.ndarray: "features"}
        return kinds.get(type(self.content), "image")

    @property
    def is_pool(self) -> bool:
        """Whether nothing says which samples belong to which client."""
        return self.clients is None and not self.options.client

    def to_spec(self) -> BenchmarkSpec:
        """The dataset as a benchmark, with one domain for each client.

        Returns:
            A description that loads and checks as that of a public benchmark; what it states as published
            sizes are the dataset's own.
        """
        names = [self.options.client or "data"] if self.clients is None else sorted(set(self.clients))
        domains = []
        for name in names:
            train, test = (self.labels[rows] for rows in self._rows(name))
            sizes = [tuple(np.bincount(part, minlength=len(self.class_names)).tolist()) for part in (train, test)]
            domains.append(
                DomainSpec(name=name, title=name, train=sizes[0], test=() if self.is_test is None else sizes[1])
            )
        return BenchmarkSpec(
            name=self.name,
            title="your data",
            modality=self.modality,
            domains=tuple(domains),
            class_names=self.class_names,
            expected_files=OWN_DATA[self.name].expected_files if self.name in OWN_DATA else "",
            download_info="",
            licence="",
            split_config=SplitConfig(skew="pooled", clients=POOL_CLIENTS) if self.is_pool else SplitConfig(),
            allow_flip=False,
            read_domain=self._read_domain,
            is_own=True,
        )

    def _rows(self, client: str) -> tuple[Indices, Indices]:
        """The training and the test rows of a client; all are training rows where the split draws them."""
        rows = np.arange(len(self.labels))
        if self.clients is not None:
            rows = rows[np.array(self.clients) == client]
        is_test = np.zeros(len(self.labels), dtype=bool) if self.is_test is None else self.is_test
        return rows[~is_test[rows]], rows[is_test[rows]]

    def _read_domain(self, root: Path, domain: str, issues: IssueLog) -> RawDomain:
        issues.remedy = _REMEDY
        issues.errors += [line for line in self.errors if line not in issues.errors]
        issues.warnings += [line for line in self.warnings if line not in issues.warnings]
        train, test = self._rows(domain)
        rows = np.concatenate([train, test])
        content = self.content
        if isinstance(content, tuple):
            content = tuple(content[row] for row in rows)
        else:
            content = content[rows] if isinstance(content, np.ndarray) else content.take(rows)
        return RawDomain(
            labels=self.labels[rows], content=content, test_size=None if self.is_test is None else len(test)
        )

    def describe(self) -> DatasetDescription:
        """What a record states about the data.

        Returns:
            The kind of samples, the dimension of features, the names of the classes, and the warnings.
        """
        dim = self.content.shape[1] if isinstance(self.content, np.ndarray) else None
        return DatasetDescription(modality=self.modality, class_names=self.class_names, dim=dim, warnings=self.warnings)


def _make_dataset(
    name: str, content: Any, table: Columns, options: DatasetOptions, issues: IssueLog, order: Sequence[str] = ()
) -> Dataset:
    """A dataset from its samples and the columns beside them; `order` is that of the classes, where it is known."""
    label_column = table.find_label(options.label_column, _LABELS)
    if isinstance(content, np.ndarray):
        content = _check_features(content, table, issues)
    elif isinstance(content, tuple):
        _log_rows(issues, table, [not text.strip() for text in content], "a text")
    labels = [_class_name(value) for value in table.columns[label_column]]
    _log_rows(issues, table, [label is None for label in labels], "a name or a whole number as label")
    classes = options.class_names or _sort_classes({label for label in labels if label is not None}, order)
    _check_classes(labels, classes, table, options, issues)
    numbers = {label: number for number, label in enumerate(classes)}
    indices = np.array([numbers.get(label or "", 0) for label in labels], dtype=np.int64)
    return Dataset(
        name=name,
        content=content,
        labels=indices,
        class_names=tuple(classes),
        clients=None if options.client else _read_clients(table, options, issues),
        is_test=_read_parts(table, options, issues),
        options=options,
        errors=tuple(issues.errors),
        warnings=tuple(issues.warnings),
    )


def _class_name(value: Any) -> str | None:
    """The name of a class as it is written; None if there is none, or it is a fraction."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip() or None
    if isinstance(value, float | np.floating):
        return str(int(value)) if np.isfinite(value) and value == int(value) else None
    return None if value is None else str(value).strip() or None


def _sort_classes(names: set[str], order: Sequence[str]) -> list[str]:
    """In the given order; numbers by value, other names as text."""
    known = [name for name in order if name in names]
    rest = names - set(known)
    is_number = all(re.fullmatch(r"-?\d+", name) for name in rest)
    return known + sorted(rest, key=lambda name: (int(name) if is_number else 0, name))


def _check_classes(
    labels: Sequence[str | None], classes: Sequence[str], table: Columns, options: DatasetOptions, issues: IssueLog
) -> None:
    """Labels outside of the declared classes, and too few classes."""
    first: dict[str | None, int] = {}
    for row, label in enumerate(labels):
        first.setdefault(label, row)
    for label in sorted({label for label in first if label is not None} - set(classes)):
        issues.error(
            f"{table.name} {table.place(first[label])}: expected a label of benchmark.class_names "
            f"({', '.join(classes[:_MAX_NAMES_LISTED])}), got {label!r}; add it there, or remove its samples"
        )
    if len(classes) < 2 and not options.client:
        issues.error(f"{table.name}: expected two classes or more, got {', '.join(classes) or 'none'}; add samples")


def _check_features(x: np.ndarray, table: Columns, issues: IssueLog) -> Float32[np.ndarray, "n d"]:
    if x.ndim != 2 or x.shape[1] == 0 or x.dtype.kind not in "fiu":
        raise InvalidInput(f"{table.name}: expected features [n, d] as numbers, got {x.dtype} of shape {x.shape}")
    is_bad = np.any(~(np.abs(x.astype(np.float64)) <= _MAX_ABS_FEATURE), axis=1, keepdims=True)
    _log_rows(issues, table, is_bad[:, 0], "finite features")
    return np.where(is_bad, 0, x).astype(np.float32)


def _log_rows(issues: IssueLog, table: Columns, is_bad: Sequence[bool] | np.ndarray, expected: str) -> None:
    """One line for all rows that lack something."""
    rows = [row for row, bad in enumerate(is_bad) if bad]
    if rows:
        more = f" and in {len(rows) - 1} more" if len(rows) > 1 else ""
        issues.error(f"{table.name}: expected {expected}, got none in {table.place(rows[0])}{more}; fix or remove them")


def _read_parts(table: Columns, options: DatasetOptions, issues: IssueLog) -> Bool[np.ndarray, " n"] | None:
    """Whether each sample is for tests; validation samples count as training samples. None: nothing says so."""
    column = table.find("split", options.split_column, _SPLITS)
    if column is None:
        return None
    parts = [_PARTS.get(str(value).strip().lower(), "") for value in table.columns[column]]
    _log_rows(issues, table, [not part for part in parts], f"train, validation or test in column {column}")
    if "validation" in parts:
        issues.warning(
            "validation samples are part of the training samples; benchmark.validation_fraction draws others"
        )
    is_test = np.array([part == "test" for part in parts])
    if is_test.all():
        issues.error(f"{table.name}: expected training samples too, got test samples only; add some")
    return is_test if is_test.any() else None


def _read_clients(table: Columns, options: DatasetOptions, issues: IssueLog) -> tuple[str, ...] | None:
    """The client of each sample: of a column client, or else domain."""
    column = table.find("client", options.client_column, _CLIENTS)
    if column is None:
        return None
    clients = [_class_name(value) or "" for value in table.columns[column]]
    _log_rows(issues, table, [not client for client in clients], f"a client in column {column}")
    for client in sorted(set(clients) - {""}):
        if not re.fullmatch(r"\w[\w .@+-]{0,99}", client):
            issues.error(f"client {client!r} names a file; use letters, digits, '.', '_' and '-'")
    return tuple(clients)


def read_folder(options: DatasetOptions, issues: IssueLog) -> Dataset:
    """Images in `class/file` or `domain/class/file`, possibly below train and test."""
    directory = issues.root
    if not directory.is_dir():
        raise InvalidInput(f"expected a directory of images, got {directory}; give one that exists")
    suffixes, files, walked = _image_suffixes(), [], list(_walk_visible(directory))
    for path in sorted(path for _, paths in walked for path in paths):
        if path.suffix.lower() in suffixes:
            files.append((path.relative_to(directory).parts, path))
        else:
            issues.warning(f"{issues.relative_path(path)}: expected an image, got another kind of file; left out")
    if not files:
        raise InvalidInput(f"expected images below {directory}, found none; give a directory with class/file")
    columns: dict[str, list[Any]] = {}
    if all(len(parts) > 1 and parts[0].lower() in _PARTS for parts, _ in files):
        columns["split"] = [parts[0] for parts, _ in files]
        files = [(parts[1:], path) for parts, path in files]
    depths = {len(parts): path for parts, path in reversed(files)}  # with the first file of each
    if len(depths) > 1 or min(depths) not in (2, 3):
        found = " and ".join(issues.relative_path(path) for _, path in sorted(depths.items()))
        raise InvalidInput(
            f"expected all images as class/file or all as domain/class/file below {directory}, got {found}; move them"
        )
    columns["label"] = [parts[-2] for parts, _ in files]
    if min(depths) == 3:
        columns["domain"] = [parts[0] for parts, _ in files]
    parents = {folder.parent for folder, _ in walked}
    for empty in [folder for folder, paths in walked if not paths and folder not in parents]:
        issues.error(f"{issues.relative_path(empty)}: expected images, found none; add some, or remove it")
    content = ImageFiles([path for _, path in files], _REMEDY)
    return _make_dataset("folder", content, Columns("the folder", columns), options, issues)


def _image_suffixes() -> set[str]:
    """Of every format that Pillow can read."""
    return {suffix for suffix, name in Image.registered_extensions().items() if name in Image.OPEN}


def _walk_visible(directory: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Directories, linked ones too, with their files; nothing hidden."""
    for name, directories, files in os.walk(directory, followlinks=True):
        directories[:] = sorted(filter(is_visible, directories))
        yield Path(name), [Path(name) / file for file in sorted(filter(is_visible, files))]


def read_features(options: DatasetOptions, issues: IssueLog) -> Dataset:
    """A table with features in one column of vectors or in many columns of numbers."""
    table = read_columns(issues.root, issues)
    return _make_dataset("features", _feature_matrix(table, options), table, options, issues)


def _feature_matrix(table: Columns, options: DatasetOptions) -> np.ndarray:
    """The vectors of one column, or all columns of numbers that are no label, client or split."""
    pattern = re.escape(options.input_column).replace(r"\*", ".*")
    named = [name for name in table.columns if options.input_column and re.fullmatch(pattern, name)]
    if options.input_column and not named:
        table.find("input", options.input_column, ())
    one = named[0] if len(named) == 1 else None if named else table.find("input", "", _FEATURES)
    if one is not None and np.ndim(table.columns[one][0]) == 1:
        return _stack(table, one)
    names = named or _other_columns(table, options)
    if not names:
        raise InvalidInput(f"{table.name}: expected columns of features, got none; set benchmark.input_column")
    columns = []
    for name in names:
        try:
            columns.append(np.asarray(table.columns[name], dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"{table.name}: expected numbers in column {name!r}, got something else ({error}); set "
                "benchmark.input_column to the columns of features, such as f*"
            ) from error
    return np.stack(columns, axis=1)


def _other_columns(table: Columns, options: DatasetOptions) -> list[str]:
    """All columns that are no label, client or split."""
    used = {
        table.find_label(options.label_column, _LABELS),
        table.find("split", options.split_column, _SPLITS),
        table.find("client", options.client_column, ()),
    }
    return [name for name in table.columns if name not in used and name.strip().lower() not in _CLIENTS]


def _stack(table: Columns, name: str) -> np.ndarray:
    column = table.columns[name]
    if isinstance(column, np.ndarray) and column.ndim == 2:
        return column
    try:
        return np.array([np.asarray(row, dtype=np.float64) for row in column])
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{table.name}: expected vectors of one length in column {name!r}, got something else ({error})"
        ) from error


def read_texts(options: DatasetOptions, issues: IssueLog) -> Dataset:
    """A table with one text in each row."""
    table = read_columns(issues.root, issues)
    column = table.find("input", options.input_column, _TEXTS)
    if column is None:
        raise InvalidInput(
            f"{table.name}: expected a column of texts ({', '.join(_TEXTS)}), got "
            f"{', '.join(list(table.columns)[:_MAX_NAMES_LISTED])}; set benchmark.input_column"
        )
    texts = tuple("" if text is None else str(text) for text in table.columns[column])
    return _make_dataset("texts", texts, table, options, issues)


def read_hugging_face(options: DatasetOptions, issues: IssueLog) -> Dataset:
    """A dataset of the package `datasets`: a directory, or a name on the hub; its splits are the parts."""
    root = str(issues.root)
    try:
        import datasets
        from pyarrow import ArrowException
    except ImportError as error:
        raise InvalidInput("benchmark hf needs the package datasets, found none; run pip install 'vpdr[hf]'") from error
    is_saved = any((issues.root / name).is_file() for name in ("dataset_dict.json", "state.json"))
    try:
        loaded = datasets.load_from_disk(root) if is_saved else datasets.load_dataset(root)
    except (OSError, ValueError, LookupError, TypeError, ArrowException, datasets.exceptions.DatasetsError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InvalidInput(
            f"cannot load the dataset {root}: {reason}; give a directory that save_to_disk wrote, or a name on "
            "the hub and a network"
        ) from error
    splits = dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {"": loaded}
    whole = datasets.concatenate_datasets(list(splits.values()))
    modalities = {name: _modality_of(feature) for name, feature in whole.features.items()}
    columns: dict[str, Any] = {name: whole[name][:] for name in modalities if modalities[name] in ("text", "other")}
    column = _hugging_face_input(modalities, Columns(root, columns), options)
    modality = modalities[column]
    columns.pop(column, None)
    if "" not in splits:
        columns["split"] = [name for name, part in splits.items() for _ in range(len(part))]
    table = Columns("the dataset", columns)
    order: Sequence[str] = ()
    label_column = table.find_label(options.label_column, _LABELS)
    if isinstance(whole.features[label_column], datasets.ClassLabel):
        order = whole.features[label_column].names
        columns[label_column] = [None if row is None or row < 0 else order[row] for row in columns[label_column]]
    content: Any
    if modality == "image":
        encoded = whole.select_columns([column]).cast_column(column, datasets.Image(decode=False))
        digest = cache_key(root, files_digest([Path(file["filename"]) for file in whole.cache_files]))

        def read_file(row: int) -> bytes | str:
            stored: Mapping[str, Any] = encoded[row][column] or {}
            return stored.get("bytes") or str(stored.get("path"))

        rows = [Path(str(row)) for row in range(len(whole))]
        content = EncodedImages(rows, _REMEDY, read_file=read_file, digest=digest)
    elif modality == "text":
        content = tuple("" if text is None else str(text) for text in whole[column][:])
    else:
        content = _stack(Columns("the dataset", {column: whole[column][:]}), column)
    return _make_dataset(HUGGING_FACE, content, table, options, issues, order)


def _hugging_face_input(modalities: Mapping[str, str], plain: Columns, options: DatasetOptions) -> str:
    """The column of the samples: images before vectors before texts."""
    texts = [name for name in _other_columns(plain, options) if modalities[name] == "text"]
    texts = [name for name in _TEXTS if name in texts] or texts
    by_modality = {kind: [name for name in modalities if modalities[name] == kind] for kind in ("image", "features")}
    for names in (*by_modality.values(), texts):
        if options.input_column in names:
            return options.input_column
        if len(names) == 1 and not options.input_column:
            return names[0]
    raise InvalidInput(
        f"{plain.name}: expected one column of images, vectors or texts, got "
        f"{', '.join(f'{name} ({kind})' for name, kind in modalities.items())}; set benchmark.input_column"
    )


def _modality_of(feature: Any) -> str:
    """Of a column of a dataset: image, features, text, other plain values, or nothing that is read."""
    from datasets import ClassLabel, LargeList, List, Value
    from datasets import Image as ImageFeature

    if isinstance(feature, List | LargeList):
        inner = feature.feature
        is_vector = isinstance(inner, Value) and inner.dtype.startswith(("float", "int", "uint", "double"))
        return "features" if is_vector else "unknown"
    if isinstance(feature, Value):
        return "text" if feature.dtype in {"string", "large_string"} else "other"
    return "image" if isinstance(feature, ImageFeature) else "other" if isinstance(feature, ClassLabel) else "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnDataKind:
    """One kind of the user's own data: a value of `benchmark.kind`, and of `--data KIND=PATH`."""

    read: Callable[[DatasetOptions, IssueLog], Dataset]
    settings: tuple[str, ...]  # of `[benchmark]`, which count
    has_places: bool = True  # whether a sample that is replaced by another one leaves all others in their rows
    expected_files: str


HUGGING_FACE, ARRAYS = "hf", "arrays"  # the kind that may be a name on the hub, and the kind of data in memory
_TABLE_SETTINGS = ("label_column", "input_column", "client_column", "split_column", "class_names", "client")
OWN_DATA = {
    "folder": OwnDataKind(
        read=read_folder,
        settings=("class_names", "client"),
        has_places=False,  # the rows are sorted by names of folders and files
        expected_files="a directory of images, class/file or domain/class/file, possibly below train and test",
    ),
    "features": OwnDataKind(
        read=read_features,
        settings=(*_TABLE_SETTINGS, "encoder"),
        expected_files="a file .npz, .parquet, .csv or .jsonl: features (x, or columns of numbers), label, and "
        "possibly client or domain, and split",
    ),
    "texts": OwnDataKind(
        read=read_texts,
        settings=_TABLE_SETTINGS,
        expected_files="a file .csv, .jsonl or .parquet: text, label, and possibly client or domain, and split",
    ),
    HUGGING_FACE: OwnDataKind(
        read=read_hugging_face,
        settings=(*_TABLE_SETTINGS, "encoder"),
        expected_files="a directory that save_to_disk of the package datasets wrote, or a name on the hub",
    ),
}


def read_dataset(kind: str, root: str, options: DatasetOptions) -> Dataset:
    """The user's own data, read once as long as their files stay as they are.

    Raises InvalidInput if they cannot be read at all; what is wrong with single samples is in `errors`.
    """
    if not root:
        raise InvalidInput(f"benchmark {kind} needs its data, got no path; give --data {kind}=PATH")
    path = Path(root).expanduser()
    if not path.exists() and (kind != HUGGING_FACE or path.is_absolute()):  # a relative one may be a name on the hub
        raise InvalidInput(f"expected {OWN_DATA[kind].expected_files}, got {path}, which does not exist; correct it")
    stamped = [each for folder, files in _walk_visible(path) for each in (folder, *files)] if path.is_dir() else [path]
    return _read_cached(kind, root, options, files_digest(stamped) if path.exists() else "")


@lru_cache(maxsize=4)
def _read_cached(kind: str, root: str, options: DatasetOptions, _files: str) -> Dataset:
    return OWN_DATA[kind].read(options, IssueLog(Path(root), remedy=_REMEDY))
