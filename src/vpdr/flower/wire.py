"""Errands and answers as Flower's records, rebuilt on arrival from a list of names."""

import json
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from vpdr.flower.errand import Answer, Errand
from vpdr.flower.refusals import Code, Refused
from vpdr.plan.plan import Plan
from vpdr.types import Prototypes

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict

ERRAND, BROADCAST, UPLOAD, FACTS = "errand", "broadcast", "upload", "facts"
PARTS = ("vectors", "variances")  # with the labels, all that an upload may consist of
MOST_BYTES = 1_000_000  # of facts; more is an attack

# words that facts are made of, so that a message need not spell them; both sides must have the same
WORDS = (
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


def errand_record(errand: Errand) -> "RecordDict":
    """What a server sends."""
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    text = json.dumps(errand.to_data())
    arrays = ArrayRecord(OrderedDict(errand.broadcast))
    return RecordDict({ERRAND: ConfigRecord({"text": text}), BROADCAST: arrays})


def read_errand(content: "RecordDict") -> Errand:
    """What a client makes of it."""
    try:
        data = json.loads(str(content.config_records[ERRAND]["text"]))
        broadcast = dict(content.array_records[BROADCAST].to_torch_state_dict())
    except (KeyError, ValueError, TypeError) as error:
        raise Refused(Code.BAD_REQUEST, str(error)) from error
    return Errand.from_data(data, broadcast)


def greeting_record(plan: Plan) -> "RecordDict":
    """A question: would you take part in this?"""
    from flwr.app import ConfigRecord, RecordDict

    return RecordDict({ERRAND: ConfigRecord({"text": json.dumps(plan.to_data())})})


def read_greeting(content: "RecordDict") -> Plan:
    """The plan that is asked about."""
    try:
        return Plan.from_data(json.loads(str(content.config_records[ERRAND]["text"])))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise Refused(Code.BAD_REQUEST, str(error)) from error


def answer_record(answer: Answer) -> "RecordDict":
    """What a client sends: built anew, so that nothing travels that is not named here."""
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    told: dict[str, Any] = {"facts": dict(answer.facts)}
    content: dict[str, Any] = {}
    if answer.upload is not None:
        arrays = answer.upload.arrays()
        told["labels"] = (
            answer.upload.labels.tolist()
        )  # a few small numbers; an array has 400 bytes of headings
        if answer.upload.on_path:
            told["on_path"] = True
        content[UPLOAD] = ArrayRecord(OrderedDict((name, arrays[name]) for name in PARTS if name in arrays))
    return RecordDict({FACTS: ConfigRecord({"z": packed(told)}), **content})


def read_answer(message: "Message") -> Answer:
    """What a server makes of a reply; `Refused` tells why there is none."""
    if message.has_error():
        raise Refused(*_complaint(message.error.code, message.error.reason or ""))
    content = message.content
    try:
        told = unpacked(content.config_records[FACTS]["z"])
        facts, upload = dict(told["facts"]), None
        if UPLOAD in content.array_records:
            arrays = content.array_records[UPLOAD].to_torch_state_dict()
            labels = torch.tensor(told["labels"], dtype=torch.int64)
            on_path = told.get("on_path") is True
            upload = Prototypes(arrays["vectors"], labels, arrays.get("variances"), on_path)
    except (KeyError, ValueError, TypeError, RuntimeError, OverflowError, zlib.error) as error:
        raise Refused(Code.BAD_REQUEST, f"unreadable: {type(error).__name__}") from error
    return Answer(upload=upload, facts=facts)


def packed(told: Mapping[str, Any]) -> bytes:
    """Plain data as few bytes."""
    packer = zlib.compressobj(9, zdict=WORDS)
    return packer.compress(json.dumps(told, separators=(",", ":")).encode()) + packer.flush()


def unpacked(raw: object) -> Any:
    """The inverse; a text that would grow beyond all bounds is cut, and then it is no text."""
    if not isinstance(raw, bytes):
        raise TypeError("expected bytes")
    return json.loads(zlib.decompressobj(zdict=WORDS).decompress(raw, MOST_BYTES))


def _complaint(number: int, reason: str) -> tuple[Code, str]:
    """A client's own code, or what Flower says about a client that gave none."""
    if reason in list(Code):
        return Code(reason), ""
    return Code.FAILED, _FLOWER.get(number, "no answer")


_FLOWER = {2: "crashed", 5: "node unavailable", 8: "crashed"}  # flwr.common.constant.ErrorCode
