"""Encodes incidents as OTLP log records, in JSON or protobuf, and decodes the receiver's response.

Sources: opentelemetry.io/docs/specs/otlp (1.x), opentelemetry-proto v1, the semantic conventions for resources and logs.
Protobuf is encoded from the table of fields below, since the official packages need 25 MiB and have their own queue in
memory. A test decodes the result with the official definitions.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from exporter import __version__
from exporter.core.collectives import collective_texts
from exporter.core.diagnosis.records import line
from exporter.net.http import Response
from exporter.outputs.webhook import record_uid

MAX_TEXT = 2048  # characters of an attribute: fits the first line; Loki refuses 64 KiB of attributes in all
MAX_ITEMS = 16  # of a list: references, evidence, ranks
MAX_ATTRIBUTES = 64  # a record has about thirty, with few captures
SEVERITIES = {"info": 9, "warning": 13, "error": 17, "critical": 21}  # INFO, WARN, ERROR, FATAL
_NO_ATTRIBUTES = frozenset({"kind", "time", "recorded_time", "node", "severity", "text"})  # have their own OTLP fields

_ON_SURROGATE = "backslashreplace"  # half of a surrogate pair becomes \udc80, as in JSON

Json = dict[str, Any]

# Message -> name in JSON -> (field number, type), from opentelemetry/proto/{collector/logs,logs,common,resource}/v1.
_FIELDS: dict[str, dict[str, tuple[int, str]]] = {
    "request": {"resourceLogs": (1, "resourceLogs")},
    "resourceLogs": {"resource": (1, "resource"), "scopeLogs": (2, "scopeLogs")},
    "resource": {"attributes": (1, "pair")},
    "scopeLogs": {"scope": (1, "scope"), "logRecords": (2, "logRecord")},
    "scope": {"name": (1, "string"), "version": (2, "string")},
    "logRecord": {
        "timeUnixNano": (1, "fixed64"),
        "severityNumber": (2, "varint"),
        "severityText": (3, "string"),
        "body": (5, "value"),
        "attributes": (6, "pair"),
        "droppedAttributesCount": (7, "varint"),
        "observedTimeUnixNano": (11, "fixed64"),
        "eventName": (12, "string"),
    },
    "pair": {"key": (1, "string"), "value": (2, "value")},
    "value": {
        "stringValue": (1, "string"),
        "boolValue": (2, "varint"),
        "intValue": (3, "varint"),
        "arrayValue": (5, "array"),
    },
    "array": {"values": (1, "value")},
}


class OtlpFormat:
    """Encodes requests to an OTLP receiver."""

    def __init__(
        self, node: str, resource: Mapping[str, str], *, encoding: Literal["protobuf", "json"] = "protobuf"
    ) -> None:
        """resource: attributes to add to those that identify the node."""
        own = {
            "service.name": "gpufault",
            "service.version": __version__,
            "service.instance.id": node,
            "host.name": node,
        }
        self._resource = [_key_value(name, value) for name, value in {**own, **resource}.items()]
        self._encoding = encoding

    def request(self, records: Sequence[Mapping[str, Any]], now: float) -> tuple[bytes, dict[str, str]]:
        """Body and headers. `now` replaces the missing time of a record from an older version."""
        scope = {"name": "gpufault", "version": __version__}
        logs = {"scope": scope, "logRecords": [_log_record(record, now) for record in records]}
        message = {"resourceLogs": [{"resource": {"attributes": self._resource}, "scopeLogs": [logs]}]}
        if self._encoding == "json":
            return line(message).encode(), {"Content-Type": "application/json"}
        return b"".join(_encode(message, "request")), {"Content-Type": "application/x-protobuf"}

    def rejected(self, response: Response) -> tuple[int, str]:
        """How many records of a request the receiver rejected, and its message. They must not be sent again."""
        if self._encoding == "json":
            return _rejected_json(response.body)
        partial = dict(_decode_fields(response.body)).get(1)
        fields = dict(_decode_fields(partial)) if isinstance(partial, bytes) else {}
        count, message = fields.get(1), fields.get(2)
        return (
            count if isinstance(count, int) else 0,
            message.decode("utf-8", "replace") if isinstance(message, bytes) else "",
        )


def _log_record(record: Mapping[str, Any], now: float) -> Json:
    severity = str(record.get("severity", ""))
    attributes = [("log.record.uid", record_uid(record)), *_attributes("gpufault", record)]
    sent = [_key_value(name, value) for name, value in attributes[:MAX_ATTRIBUTES]]
    log_record = {
        "timeUnixNano": _nanoseconds(record.get("time"), now),
        "observedTimeUnixNano": _nanoseconds(record.get("recorded_time"), now),
        "severityNumber": SEVERITIES.get(severity, 0),
        "severityText": severity,
        "eventName": "gpufault.incident",
        "body": _value(str(record.get("text", ""))),
        "attributes": sent,
    }
    if dropped := len(attributes) - len(sent):
        log_record["droppedAttributesCount"] = dropped
    return log_record


def _attributes(prefix: str, record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A record's fields as attributes, without nulls; nested names are joined with dots."""
    top = prefix == "gpufault"
    for name, value in record.items():
        if value is None or (top and name in _NO_ATTRIBUTES):
            continue
        if top and name == "path":
            yield "log.file.path", value
        elif isinstance(value, Mapping):
            yield from _attributes(f"{prefix}.{name}", value)
        elif top and name == "collectives" and isinstance(value, list):
            yield f"{prefix}.{name}", collective_texts(value)
        elif top and name == "evidence" and isinstance(value, list):
            yield f"{prefix}.{name}", [f"{e.get('what')} = {e.get('value')}" for e in value if isinstance(e, Mapping)]
        elif value != []:
            yield f"{prefix}.{name}", value


def _key_value(name: str, value: Any) -> Json:
    return {"key": name, "value": _value(value)}


def _value(value: Any) -> Json:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return {"intValue": str(value)}  # in JSON, 64-bit numbers are strings
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value[:MAX_ITEMS] if not isinstance(item, list)]}}
    text = str(value)
    return {"stringValue": text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"}


def _nanoseconds(time: Any, now: float) -> str:
    """An RFC 3339 time as nanoseconds since 1970, in text; `now` if it is invalid."""
    try:
        seconds = datetime.fromisoformat(time).timestamp()
    except (ValueError, TypeError, OverflowError):
        seconds = now
    return str(max(round(seconds * 1000), 0) * 1_000_000)


# -- protobuf: protobuf.dev/programming-guides/encoding


def _encode(message: Mapping[str, Any], kind: str) -> Iterator[bytes]:
    for name, value in message.items():
        number, field_type = _FIELDS[kind][name]
        for item in value if isinstance(value, list) else [value]:
            if field_type == "varint":
                yield _encode_varint(number << 3) + _encode_varint(int(item) & (1 << 64) - 1)
            elif field_type == "fixed64":
                yield _encode_varint(number << 3 | 1) + int(item).to_bytes(8, "little")
            else:
                data = (
                    item.encode(errors=_ON_SURROGATE) if field_type == "string" else b"".join(_encode(item, field_type))
                )
                yield _encode_varint(number << 3 | 2) + _encode_varint(len(data)) + data


def _encode_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _decode_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a message, up to the first invalid byte."""
    at = 0
    while at < len(data):
        key, at = _decode_varint(data, at)
        if key & 7 == 0:
            value, at = _decode_varint(data, at)
            yield key >> 3, value
        elif key & 7 == 2:
            length, at = _decode_varint(data, at)
            yield key >> 3, data[at : at + length]
            at += length
        elif key & 7 in (1, 5):
            at += 8 if key & 7 == 1 else 4
        else:
            return


def _decode_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift, byte in enumerate(data[at : at + 10]):
        number |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    return 0, len(data)


def _rejected_json(body: bytes) -> tuple[int, str]:
    try:
        partial = json.loads(body or b"{}").get("partialSuccess") or {}
        return int(partial.get("rejectedLogRecords") or 0), str(partial.get("errorMessage") or "")
    except (ValueError, AttributeError, TypeError, RecursionError):
        return 0, ""
