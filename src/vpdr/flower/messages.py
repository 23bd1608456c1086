"""The messages between server and client, their form as Flower records, and the validation of what is received.

The names of records and keys are the wire format; a receiver reads known names only.
"""

import json
import math
import re
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from vpdr.client import Client
from vpdr.config import RunConfig
from vpdr.flower.owner import Refusal, RefusalCode
from vpdr.privacy.ledger import LedgerEntry, entry_from_dict
from vpdr.types import Prototypes, Tensor, TrainBatch
from vpdr.validation import InvalidInput

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict

REQUEST_RECORD, BROADCAST_RECORD, UPLOAD_RECORD, METADATA_RECORD = "errand", "broadcast", "upload", "facts"
UPLOAD_ARRAYS = ("vectors", "variances")  # with the labels, all that an upload consists of
MAX_METADATA_BYTES = 1_000_000  # after decompression
MAX_BROADCAST_COORDINATE = 1e6  # of a global prototype
MAX_PROTOTYPES_PER_CLASS = 1000  # in one upload
MAX_METRIC_VALUES = 1000  # in one reply
_METRIC_DEPTHS = {"losses": 1, "accuracy": 2, "features": 1, "release": 1, "epsilon": 0, "seconds": 1}
_RUN_NAME = re.compile(r"[0-9a-f]{16}")
_FLWR_ERRORS = {2: "crashed", 5: "node unavailable", 8: "crashed"}  # flwr.common.constant.ErrorCode


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundRequest:
    """One message to one client: first fine-tune on the last broadcast, then release for this round.

    Message i closes round i - 1 and opens round i, so a run of T rounds has T + 1 messages.
    """

    run: str  # identifier of the run, kept when the server restarts
    message_index: int
    config: RunConfig
    finetune: bool = False
    release: bool = False
    known_receipts: int = 0  # number of receipts that the server already has
    broadcast: Mapping[str, Tensor] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """Everything but the arrays, as JSON data."""
        return {
            "run": self.run,
            "hop": self.message_index,
            "plan": self.config.to_dict(),
            "learn": self.finetune,
            "release": self.release,
            "known": self.known_receipts,
        }

    @classmethod
    def from_data(cls, data: Any, broadcast: Mapping[str, Tensor]) -> "RoundRequest":
        """Parse a request; nothing in it is trusted, and anything else is refused as `bad-request`."""
        try:
            config = RunConfig.from_dict(data["plan"])
            run, index, known = data["run"], data["hop"], data["known"]
            finetune, release = data["learn"] is True, data["release"] is True
        except (InvalidInput, KeyError, TypeError, ValueError, AttributeError) as error:
            raise Refusal(RefusalCode.BAD_REQUEST, str(error)) from error
        are_numbers = type(index) is int and type(known) is int and known >= 0
        if not are_numbers or not isinstance(run, str) or not _RUN_NAME.fullmatch(run):
            raise Refusal(RefusalCode.BAD_REQUEST, f"run {run!r}, hop {index!r}, known {known!r}")
        if not (1 + finetune) <= index <= (config.run.rounds + 1 - release):
            # nothing to learn from in the first message, nothing to release in the last
            raise Refusal(RefusalCode.BAD_REQUEST, f"message {index} of {config.run.rounds} rounds")
        return cls(
            run=run,
            message_index=index,
            config=config,
            finetune=finetune,
            release=release,
            known_receipts=known,
            broadcast=broadcast,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundReply:
    """The reply of one client: an upload that was charged to the ledger, and metadata."""

    upload: Prototypes | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


# common strings of the metadata, for a smaller message; both sides need the same bytes
ZLIB_DICTIONARY = (
    b'"seconds":{"finetune":0.01},"overlap":"chance":"selection_scale":"saturated":"sigma_focus":"sigma_rest":'
    b'"contrast":"correct":"distil":"global":"local":"kind":"not_private"}]"counts":"private""encoder":"public"'
    b'"noise":"system""adjacency":"replace-one""add-remove""basis":"as published"'
    b'{"facts":{"classes":10,"why":"","entries":[{"round":1,"events":[{"kind":"pure","epsilon":0.0},'
    b'{"kind":"gaussian","multiplier":7.0}],"terms":{"adjacency":"replace-same-label","encoder":"personal",'
    b'"counts":"public","basis":"proved","noise":"seeded"}}],"measured":{"losses":{"task":1.0,"align":0.0,'
    b'"guide":0.0},"accuracy":{"own":{"head":1.0,"soft_clipped":1.0,"framework":1.0,"nearest":0.0,'
    b'"nearest_cosine":0.0},"all":{"head":1.0,"soft_clipped":1.0,"framework":1.0,"nearest":0.0,'
    b'"nearest_cosine":0.0}},"features":{"norm_mean":1.0,"norm_q05":1.0,"norm_q25":1.0,"norm_q50":1.0,'
    b'"norm_q75":1.0,"norm_q95":1.0,"share_above_clip_norm":1.0,"teacher_gap":0.0},"release":{"sigma":1.0,'
    b'"noise_to_signal":1.0,"energy_ratio":1.0,"relative_error":1.0},"epsilon":0.0,"seconds":{}},'
    b'"seconds":0.0},"labels":[0,1,2,3,4,5,6,7,8,9]}'
)


def request_to_record(request: RoundRequest) -> "RecordDict":
    """Encode a request."""
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    text, arrays = json.dumps(request.to_data()), ArrayRecord(OrderedDict(request.broadcast))
    return RecordDict({REQUEST_RECORD: ConfigRecord({"text": text}), BROADCAST_RECORD: arrays})


def request_from_record(content: "RecordDict") -> RoundRequest:
    """Decode a request on the client."""
    try:
        data = json.loads(str(content.config_records[REQUEST_RECORD]["text"]))
        broadcast = dict(content.array_records[BROADCAST_RECORD].to_torch_state_dict())
    except (KeyError, ValueError, TypeError) as error:
        raise Refusal(RefusalCode.BAD_REQUEST, str(error)) from error
    return RoundRequest.from_data(data, broadcast)


def hello_to_record(config: RunConfig) -> "RecordDict":
    """Encode the question whether a client takes part in this run."""
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({REQUEST_RECORD: ConfigRecord({"text": json.dumps(config.to_dict())})})


def hello_from_record(content: "RecordDict") -> RunConfig:
    """Decode the configuration of a hello message."""
    try:
        return RunConfig.from_dict(json.loads(str(content.config_records[REQUEST_RECORD]["text"])))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise Refusal(RefusalCode.BAD_REQUEST, str(error)) from error


def reply_to_record(reply: RoundReply) -> "RecordDict":
    """Encode a reply from the names listed here only."""
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    data: dict[str, Any] = {"facts": dict(reply.metadata)}
    uploads: dict[str, Any] = {}
    if reply.upload is not None:
        arrays = reply.upload.to_arrays()
        data["labels"] = reply.upload.labels.tolist()  # as JSON: an array record has 400 bytes of headers
        if reply.upload.in_broadcast_space:
            data["on_path"] = True
        sent = OrderedDict((name, arrays[name]) for name in UPLOAD_ARRAYS if name in arrays)
        uploads[UPLOAD_RECORD] = ArrayRecord(sent)
    return RecordDict({METADATA_RECORD: ConfigRecord({"z": compress_json(data)}), **uploads})


def reply_from_message(message: "Message") -> RoundReply:
    """Decode a reply on the server; `Refusal` if the client refused or failed, or the reply cannot be decoded."""
    if message.has_error():
        reason = message.error.reason
        if reason in list(RefusalCode):
            raise Refusal(RefusalCode(reason))
        raise Refusal(RefusalCode.FAILED, _FLWR_ERRORS.get(message.error.code, "no answer"))
    content = message.content
    try:
        data = decompress_json(content.config_records[METADATA_RECORD]["z"])
        metadata, upload = dict(data["facts"]), None
        if UPLOAD_RECORD in content.array_records:
            arrays = content.array_records[UPLOAD_RECORD].to_torch_state_dict()
            labels = torch.tensor(data["labels"], dtype=torch.int64)
            in_broadcast_space = data.get("on_path") is True
            upload = Prototypes(arrays["vectors"], labels, arrays.get("variances"), in_broadcast_space)
    except (KeyError, ValueError, TypeError, RuntimeError, OverflowError, zlib.error) as error:
        raise Refusal(RefusalCode.BAD_REQUEST, f"unreadable: {type(error).__name__}") from error
    return RoundReply(upload=upload, metadata=metadata)


def compress_json(data: Mapping[str, Any]) -> bytes:
    """JSON, compressed with the shared dictionary."""
    compressor = zlib.compressobj(9, zdict=ZLIB_DICTIONARY)
    return compressor.compress(json.dumps(data, separators=(",", ":")).encode()) + compressor.flush()


def decompress_json(raw: object) -> Any:
    """The inverse of `compress_json`; text beyond `MAX_METADATA_BYTES` is cut, and then is not valid JSON."""
    if not isinstance(raw, bytes):
        raise TypeError("expected bytes")
    return json.loads(zlib.decompressobj(zdict=ZLIB_DICTIONARY).decompress(raw, MAX_METADATA_BYTES))


def validate_broadcast(client: Client, arrays: Mapping[str, Tensor]) -> Any:
    """Decode a broadcast and check that the client can use it, or refuse it; no sample is read.

    Guarantee: a refusal depends on the broadcast, the number of classes and the dimension only.
    """
    try:
        if not all(bool(torch.isfinite(array).all()) for array in arrays.values()):
            raise Refusal(RefusalCode.BROADCAST, "not all values are finite")
        broadcast = client.framework.unpack(arrays)
        prototypes = client.framework.global_prototypes(broadcast)
        if prototypes is not None and not _prototypes_fit(prototypes, client):
            raise Refusal(RefusalCode.BROADCAST, "prototypes of unknown classes or another dimension")
        _apply_to_artificial_batches(broadcast, client)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise Refusal(RefusalCode.BROADCAST, str(error)) from error
    return broadcast


def _prototypes_fit(prototypes: Prototypes, client: Client) -> bool:
    vectors, labels = prototypes.vectors, prototypes.labels
    dim, classes = client.shard.train.frozen_features.shape[1], client.train_config.classes
    if vectors.ndim != 2 or labels.ndim != 1 or vectors.shape != (len(labels), dim):
        return False
    if not len(labels):
        return True
    if float(vectors.abs().max()) > MAX_BROADCAST_COORDINATE:
        return False
    return int(labels.min()) >= 0 and int(labels.max()) < classes


@torch.no_grad()
def _apply_to_artificial_batches(broadcast: Any, client: Client) -> None:
    """Compute losses on all classes together and on each class alone, and the feature map of later releases.

    Otherwise a broadcast that fails for one class only would reveal whether the client has that class.
    """
    dim, classes = client.shard.train.frozen_features.shape[1], client.train_config.classes
    for labels in (torch.arange(classes), *torch.arange(classes).split(1)):
        rows, weights = torch.ones(len(labels), dim), torch.ones(len(labels))
        batch = TrainBatch(rows, torch.zeros(len(labels), classes), labels, rows, weights)
        for name, value in client.framework.losses(batch, broadcast).items():
            if not bool(torch.isfinite(value)):
                raise Refusal(RefusalCode.BROADCAST, f"the loss {name!r} is not finite")
    feature_map, rows = client.framework.feature_map(broadcast), torch.ones(2, dim)
    if feature_map is not None and feature_map(rows).shape != rows.shape:
        raise Refusal(RefusalCode.BROADCAST, "the feature map changes the shape of features")


def reason_to_reject(upload: Prototypes, *, classes: int, dim: int, max_norm: float) -> str | None:
    """Why an upload cannot be used, from its public shape, or None."""
    vectors, labels, variances = upload.vectors, upload.labels, upload.variances
    if vectors.ndim != 2 or vectors.shape[1] != dim or labels.shape != vectors.shape[:1]:
        return "shape"
    if vectors.dtype != torch.float32 or labels.dtype != torch.int64:
        return "kind of numbers"
    if len(labels) > classes * MAX_PROTOTYPES_PER_CLASS:
        return "too many"
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        return "labels"
    if not bool(torch.isfinite(vectors).all()):
        return "not finite"
    if bool((vectors.double().norm(dim=1) > max_norm).any()):
        return "norm"
    if variances is not None and (variances.shape != labels.shape or not bool((variances >= 0).all())):
        return "variances"
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyMetadata:
    """The metadata of a reply."""

    classes: int
    no_upload_reason: str  # a refusal code, or empty
    entries: tuple[LedgerEntry, ...]  # receipts that are new to the server
    metrics: Mapping[str, Any]
    release_seconds: float


def parse_metadata(reply: RoundReply) -> ReplyMetadata | None:
    """The metadata of a reply, or None if they are invalid."""
    data = reply.metadata
    try:
        measured = data["measured"]
        if type(data["classes"]) is not int or data["classes"] < 1 or data["why"] not in ("", *RefusalCode):
            return None
        if not isinstance(measured, dict) or len(_leaves(measured)) > MAX_METRIC_VALUES:
            return None
        return ReplyMetadata(
            classes=data["classes"],
            no_upload_reason=data["why"],
            entries=tuple(entry_from_dict(entry) for entry in data["entries"]),
            metrics={
                name: _parse_numbers(measured[name], depth)
                for name, depth in _METRIC_DEPTHS.items()
                if name in measured
            },
            release_seconds=float(data["seconds"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, InvalidInput):
        return None


def _leaves(value: Any) -> list[Any]:
    """All values of nested dictionaries."""
    if not isinstance(value, dict):
        return [value]
    return [leaf for inner in value.values() for leaf in _leaves(inner)]


def _parse_numbers(value: Any, depth: int) -> Any:
    """A number, or numbers by name, nested as deep as given."""
    if depth == 0:
        is_number = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        if not is_number or (isinstance(value, float) and math.isinf(value)):
            raise InvalidInput(f"expected a number, got {type(value).__name__}")
        return value
    if not isinstance(value, dict) or not all(isinstance(key, str) and len(key) < 64 for key in value):
        raise InvalidInput("expected numbers by name")
    return {key: _parse_numbers(inner, depth - 1) for key, inner in value.items()}
