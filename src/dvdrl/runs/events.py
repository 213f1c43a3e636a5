"""Records of TensorBoard's event files, made with protobuf and the checksum of the format.

tensorboardX has a writer for them, with a thread that ends at the first error, such as a full disk; the training then
waits for it forever. Its messages are not public. So records are made here, and `dvdrl.runs.metrics` writes them.
"""

import struct
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import google_crc32c
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass


def _message(name: str, *fields: tuple[str, int, str], repeated: bool = False) -> dict[str, Any]:
    """A message of fields: name, number, and the type, of which a capital letter is another message's."""
    label = "LABEL_REPEATED" if repeated else "LABEL_OPTIONAL"
    described = [
        {"name": field, "number": number, "label": label}
        | ({"typeName": kind} if kind[0].isupper() else {"type": f"TYPE_{kind.upper()}"})
        for field, number, kind in fields
    ]
    return {"name": name, "field": described}


# The part of TensorFlow's event.proto and summary.proto that scalars need. The numbers are the format of the file.
_MESSAGES = (
    _message("Value", ("tag", 1, "string"), ("simple_value", 2, "float")),
    _message("Summary", ("value", 1, "Value"), repeated=True),
    _message("SessionLog", ("status", 1, "int32")),
    _message(
        "Event",
        ("wall_time", 1, "double"),
        ("step", 2, "int64"),
        ("file_version", 3, "string"),
        ("summary", 5, "Summary"),
        ("session_log", 7, "SessionLog"),
    ),
)
_START = 1
"""SessionLog.status: what other files have of this step and later ones does not count."""


@cache
def _event_type() -> Any:
    pool = DescriptorPool()
    pool.Add(ParseDict({"name": "dvdrl_events.proto", "messageType": _MESSAGES}, FileDescriptorProto()))
    return GetMessageClass(pool.FindMessageTypeByName("Event"))


def beginning(iteration: int) -> bytes:
    """The records that begin a file, when so many iterations are complete."""
    records = _record(file_version="brain.Event:2")
    return records + _record(step=iteration + 1, session_log={"status": _START}) if iteration else records


def scalars(iteration: int, values: Mapping[str, float]) -> bytes:
    """The record of the numbers of an iteration."""
    summary = {"value": [{"tag": name, "simple_value": value} for name, value in values.items()]}
    return _record(step=iteration, summary=summary)


def _record(**event: Any) -> bytes:
    """Length, checksum, event, checksum."""
    data = _event_type()(wall_time=time.time(), **event).SerializeToString()
    length = struct.pack("<Q", len(data))
    return b"".join(part + struct.pack("<I", _masked_checksum(part)) for part in (length, data))


def _masked_checksum(content: bytes) -> int:
    """CRC-32C as a record has it: rotated right by 15 bits, plus a constant."""
    checksum: int = google_crc32c.value(content)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) % 2**32
