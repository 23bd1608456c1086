"""Errands and answers as Flower's records, rebuilt on arrival from a list of names."""

import json
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from vpdr.flower.errand import Answer, Errand
from vpdr.flower.refusals import Code, Refused
from vpdr.plan.plan import Plan
from vpdr.types import Prototypes

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict

ERRAND, BROADCAST, UPLOAD, FACTS = "errand", "broadcast", "upload", "facts"
PARTS = ("vectors", "labels", "variances")  # all that an upload may consist of
MOST_BYTES = 1_000_000  # of facts; more is an attack


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

    packed = zlib.compress(json.dumps(dict(answer.facts), separators=(",", ":")).encode(), 9)
    content: dict[str, Any] = {FACTS: ConfigRecord({"z": packed})}
    if answer.upload is not None:
        arrays = answer.upload.arrays()
        named: OrderedDict[str, Tensor] = OrderedDict((n, arrays[n]) for n in PARTS if n in arrays)
        content[UPLOAD] = ArrayRecord(named)
    return RecordDict(content)


def read_answer(message: "Message") -> Answer:
    """What a server makes of a reply; `Refused` tells why there is none."""
    if message.has_error():
        raise Refused(*_complaint(message.error.code, message.error.reason or ""))
    content = message.content
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(_bytes(content.config_records[FACTS]["z"]), MOST_BYTES)
        facts = json.loads(raw)
        arrays: Mapping[str, Tensor] = {}
        if UPLOAD in content.array_records:
            arrays = content.array_records[UPLOAD].to_torch_state_dict()
        upload = Prototypes(arrays["vectors"], arrays["labels"], arrays.get("variances")) if arrays else None
    except (KeyError, ValueError, TypeError, zlib.error, RecursionError) as error:
        raise Refused(Code.BAD_REQUEST, f"unreadable: {type(error).__name__}") from error
    if not isinstance(facts, dict):
        raise Refused(Code.BAD_REQUEST, "unreadable: no facts")
    return Answer(upload=upload, facts=facts)


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("expected bytes")
    return value


def _complaint(number: int, reason: str) -> tuple[Code, str]:
    """A client's own code, or what Flower says about a client that gave none."""
    if reason in list(Code):
        return Code(reason), ""
    return Code.FAILED, _FLOWER.get(number, "no answer")


_FLOWER = {2: "crashed", 5: "node unavailable", 8: "crashed"}  # flwr.common.constant.ErrorCode
