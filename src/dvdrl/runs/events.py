"""Records of TensorBoard's event files, made with protobuf and the checksum of the format.

tensorboardX has a writer for such files. But its thread ends at the first error, such as a full disk, and training then
waits for it forever. Its messages are not public. This module therefore makes the records itself, and
`dvdrl.runs.metrics` writes them.
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
    """A message type. Each field has a name, a number and a type; a capitalised type is another message."""
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
"""A value of SessionLog.status. TensorBoard then ignores this step and later ones in other files."""


@cache
def _event_type() -> Any:
    pool = DescriptorPool()
    pool.Add(ParseDict({"name": "dvdrl_events.proto", "messageType": _MESSAGES}, FileDescriptorProto()))
    return GetMessageClass(pool.FindMessageTypeByName("Event"))


def beginning(iteration: int) -> bytes:
    """The first records of a file, after the given number of completed iterations."""
    records = _record(file_version="brain.Event:2")
    return records + _record(step=iteration + 1, session_log={"status": _START}) if iteration else records


def scalars(iteration: int, values: Mapping[str, float]) -> bytes:
    """The record with the numbers of an iteration."""
    summary = {"value": [{"tag": name, "simple_value": value} for name, value in values.items()]}
    return _record(step=iteration, summary=summary)


def _record(**event: Any) -> bytes:
    """A record: length, checksum of the length, event, checksum of the event."""
    data = _event_type()(wall_time=time.time(), **event).SerializeToString()
    length = struct.pack("<Q", len(data))
    return b"".join(part + struct.pack("<I", _masked_checksum(part)) for part in (length, data))


def _masked_checksum(content: bytes) -> int:
    """CRC-32C in the form that records use: rotated right by 15 bits, plus a constant."""
    checksum: int = google_crc32c.value(content)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) % 2**32
