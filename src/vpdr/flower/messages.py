"""The messages between server and client, and their form as Flower records.

The names of records and keys are the wire format; a receiver reads known names only.
"""

import json
import re
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vpdr.config import RunConfig
from vpdr.errors import InvalidInput
from vpdr.flower.owner import Refusal, RefusalCode
from vpdr.types import Prototypes

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict


REQUEST_RECORD, BROADCAST_RECORD, UPLOAD_RECORD, METADATA_RECORD = "errand", "broadcast", "upload", "facts"
UPLOAD_ARRAYS = ("vectors", "variances")  # with the labels, all that an upload consists of
MAX_METADATA_BYTES = 1_000_000  # after decompression
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
        """Parse a request; nothing in it is trusted.

        Raises:
            Refusal: `bad-request`.
        """
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

    text = json.dumps(request.to_data())
    arrays = ArrayRecord(OrderedDict(request.broadcast))
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
        uploads[UPLOAD_RECORD] = ArrayRecord(
            OrderedDict((name, arrays[name]) for name in UPLOAD_ARRAYS if name in arrays)
        )
    return RecordDict({METADATA_RECORD: ConfigRecord({"z": compress_json(data)}), **uploads})


def reply_from_message(message: "Message") -> RoundReply:
    """Decode a reply on the server.

    Raises:
        Refusal: the client refused or failed, or the reply cannot be decoded.
    """
    if message.has_error():
        raise Refusal(*_refusal_from_error(message.error.code, message.error.reason or ""))
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


def _refusal_from_error(error_code: int, reason: str) -> tuple[RefusalCode, str]:
    """The code of the client, or a description of Flower's error."""
    if reason in list(RefusalCode):
        return RefusalCode(reason), ""
    return RefusalCode.FAILED, _FLWR_ERRORS.get(error_code, "no answer")
