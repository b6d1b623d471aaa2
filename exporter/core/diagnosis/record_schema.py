"""The schema of each kind of record, checked once, where a record of a node enters: pulled, in a file, in an answer.

A node may be broken, or lie. A record that passes has the types below, times between two years, and bounded texts, lists
and depth. Texts are cut and printable. All other records are refused with a reason. Knows no files and no tables.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import from_json

from exporter.core.text.phrases import printable

MAX_RECORD_BYTES = 1 << 20  # a record with an excerpt of ten lines has some 30 kB
MAX_NAME_CHARS = 256  # DNS and Kubernetes names have 253
MAX_TEXT_CHARS = 4096  # the daemon writes 2,048
MAX_ITEMS = 256  # of a list; a node has at most some 100 ranks of a job
MAX_FACTS = 4096  # a node states 155 and its cards, and a site a few
EARLIEST, LATEST = 788918400.0, 4102444800.0  # 1995, as published records have it, and 2100; logs give no later time
MAX_BEAT_HOURS = 31 * 24.0
MAX_GPUS = 1024.0  # of a node
MAX_COUNT = 1 << 53  # what JSON's readers keep exactly
NOT_JSON, NOT_AN_OBJECT, TOO_LONG, NO_KIND = "not JSON", "not a JSON object", "too long", "no kind"


class RefusedRecord(ValueError):
    """A record that does not pass. The message is the reason; `node` is the name in it, if it has a usable one."""

    def __init__(self, reason: str, node: str = "") -> None:
        self.reason, self.node = reason, node
        super().__init__(reason)


def _name(text: str) -> str:
    return printable(text[:MAX_NAME_CHARS])


def _text(text: str) -> str:
    """Lines stay lines."""
    cut = text[:MAX_TEXT_CHARS]
    return cut if cut.isprintable() else "\n".join(map(printable, cut.split("\n")))


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("not a number")
    return value


def _seconds(value: Any) -> Any:
    """RFC 3339, UTC where no zone is given, or Unix seconds."""
    if not isinstance(value, str):
        return _number(value)
    if value.replace(".", "", 1).isdecimal():
        return float(value)
    moment = datetime.fromisoformat(value)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _items(value: Any) -> Any:
    """The first items of a list or mapping; a reader needs no more."""
    if isinstance(value, dict) and len(value) > MAX_ITEMS:
        return dict(list(value.items())[:MAX_ITEMS])
    return () if value is None else value[:MAX_ITEMS] if isinstance(value, list | tuple) else value


def _object(value: Any) -> Any:
    """An object, which a column of a Parquet file may hold as text."""
    return from_json(value) if isinstance(value, str) and value.startswith("{") else value


def _job(value: Any) -> Any:
    """A job; its id alone is one too."""
    value = _object(value)
    return {"id": value} if isinstance(value, str | int) and not isinstance(value, bool) else value


def _facts(value: Any) -> Any:
    """Facts as texts: another value by its JSON; null and "" mean that a fact is not known."""
    value = _object(value)
    if not isinstance(value, dict) or len(value) > MAX_FACTS:
        raise ValueError("not an object of facts")
    return {
        _name(name): of if isinstance(of, str) else json.dumps(of) for name, of in value.items() if of not in (None, "")
    }


# What most records hold, checked without a call of Python: a name in ASCII, and facts of such names and values.
_Plain = Annotated[str, StringConstraints(strict=True, max_length=MAX_NAME_CHARS, pattern="^[ -~]+$")]
_PlainFacts = Annotated[dict[_Plain, _Plain], Field(max_length=MAX_FACTS)]
Name = Annotated[str, AfterValidator(_name)]
Key = Annotated[str, StringConstraints(min_length=1), AfterValidator(_name)]
Text = Annotated[str, AfterValidator(_text)]
Count = Annotated[int, BeforeValidator(_number), Field(ge=0, le=MAX_COUNT)]
Time = Annotated[float, BeforeValidator(_seconds), Field(ge=EARLIEST, le=LATEST, allow_inf_nan=False)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_items)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_items)]


def _hours(most: float) -> Any:
    return Field(ge=0, le=most, allow_inf_nan=False)


class _Part(BaseModel):
    """Fields that a later version adds are left out."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)


class RecordedJob(_Part):
    id: Name | None = None
    user: Name | None = None
    rank: Name | None = None
    kind: Name | None = None
    confidence: Name | None = None
    method: Name | None = None
    raw_id: Name | None = None
    step: Name | None = None
    account: Name | None = None
    name: Name | None = None
    container: Name | None = None
    image: Name | None = None
    restart: Name | None = None
    namespace: Name | None = None
    pod: Name | None = None
    uid: Name | None = None


class RecordedEvidence(_Part):
    what: Name = ""
    value: Text | None = None
    why: Text | None = None


class SameTime(_Part):
    signature: Name = ""
    gpu: Name | None = None
    text: Text | None = None


class RecordedOperation(_Part):
    op: Name
    count: Count = 0
    ranks: Names = ()


class RecordedWaitPoint(_Part):
    seq: Count
    count: Count = 0
    ranks: Names = ()
    operations: Annotated[tuple[RecordedOperation, ...], BeforeValidator(_items)] = ()
    hosts: Annotated[dict[Name, Name], BeforeValidator(_items)] = Field(default_factory=dict)


class RecordedCollective(_Part):
    group: Name | None = None
    size: Count | None = None
    reporting: Count = 0
    places: Annotated[tuple[RecordedWaitPoint, ...], BeforeValidator(_items)] = ()


class RecordedBoot(_Part):
    id: Name | None = None
    time: Time


class ClearedBy(_Part):
    kind: Name
    time: Time | None = None
    reason: Text | None = None
    who: Name | None = None


class IncidentRecord(_Part):
    kind: Literal["incident"] = "incident"
    time: Time
    node: Key
    signature: Key
    id: Name | None = None
    root_cause: Name | None = None
    undecided: Names = ()
    severity: Name | None = None
    vendor: Name | None = None
    layer: Name | None = None
    source: Name | None = None
    path: Text | None = None
    line: Count | None = None
    offset: Count | None = None
    record: Count | None = None
    lines: Count | None = None
    time_source: Name | None = None
    last_time: Time | None = None
    recorded_time: Time | None = None
    claimed_time: Name | None = None  # a claim of a line, whatever it is
    late: bool | None = None
    text: Text | None = None
    captures: Annotated[dict[Name, Text | None], BeforeValidator(_items)] = Field(default_factory=dict)
    gpu: Name | None = None
    job: Annotated[RecordedJob | None, BeforeValidator(_job)] = None
    ranks: Names = ()
    collectives: Annotated[tuple[RecordedCollective, ...], BeforeValidator(_items)] = ()
    role: Name | None = None
    caused_by: Name | None = None
    verdict: Name | None = None
    domain: Name | None = None
    restart: Name | None = None
    evidence: Annotated[tuple[RecordedEvidence, ...], BeforeValidator(_items)] = ()
    remediation: Text | None = None
    references: Texts = ()
    same_time: Annotated[tuple[SameTime, ...], BeforeValidator(_items)] = ()
    excerpt: Texts = ()


class FactsRecord(_Part):
    kind: Literal["facts"]
    time: Time
    node: Key
    facts: Annotated[
        _PlainFacts | Annotated[dict[str, Name], BeforeValidator(_facts)], Field(union_mode="left_to_right")
    ]
    boot: Annotated[RecordedBoot | None, BeforeValidator(_object)] = None


class HeartbeatRecord(_Part):
    kind: Literal["heartbeat"]
    time: Time
    node: Key
    hours: Annotated[float, BeforeValidator(_number), _hours(MAX_BEAT_HOURS)]
    gpu_busy_hours: Annotated[float, BeforeValidator(_number), _hours(MAX_BEAT_HOURS * MAX_GPUS)] | None = None


class JobEndRecord(_Part):
    kind: Literal["job_end"]
    time: Time
    node: Key
    job: Annotated[RecordedJob, BeforeValidator(_job)]
    outcome: Literal["explained", "unrecognised", "signal", "no_line"]
    started: Time | None = None
    recorded_time: Time | None = None


class FaultRecord(_Part):
    kind: Literal["fault"]
    time: Time
    node: Key
    signature: Key
    state: Literal["open", "cleared"]
    root_cause: Name | None = None
    gpu: Name | None = None
    job: Name | None = None
    action: Name | None = None
    cleared: Annotated[ClearedBy | None, BeforeValidator(_object)] = None


Record = IncidentRecord | FactsRecord | HeartbeatRecord | JobEndRecord | FaultRecord
KINDS: Mapping[str, type[Record]] = {
    "incident": IncidentRecord, "facts": FactsRecord, "heartbeat": HeartbeatRecord, "job_end": JobEndRecord,
    "fault": FaultRecord,
}  # fmt: skip
_RECORD: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="kind")])


def parse(line: bytes | str) -> Record | None:
    """A line of a journal; None for a kind that a later version writes. Raises RefusedRecord."""
    if len(line) > MAX_RECORD_BYTES:
        raise RefusedRecord(TOO_LONG)
    try:
        return _RECORD.validate_json(line)
    except ValidationError as error:
        _refuse(error, line)
    return None


def as_line(record: Record) -> bytes:
    """A record as one line of JSON that holds nothing but the schema's fields; times are Unix seconds."""
    return _RECORD.dump_json(record, exclude_unset=True) + b"\n"


def incident_of(given: object) -> IncidentRecord:
    """An incident in a daemon's answer, or a fleet service's, which names the `cause`. Raises RefusedRecord."""
    if not isinstance(given, dict):
        raise RefusedRecord(NOT_AN_OBJECT)
    try:
        return IncidentRecord.model_validate({"signature": given.get("cause"), **given, "kind": "incident"})
    except ValidationError as error:
        raise RefusedRecord(_reason(error, 0)) from None


def _reason(error: ValidationError, at: int) -> str:
    """Why a record does not pass: `no time`, `no usable time`. at: where the errors' locations name the field."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    missing = first["type"] in ("missing", "string_too_short")
    return f"no {'' if missing else 'usable '}{first['loc'][at]}"


def _refuse(error: ValidationError, line: bytes | str) -> None:
    try:
        given = from_json(line)
    except ValueError:
        raise RefusedRecord(NOT_JSON) from None
    if not isinstance(given, dict):
        raise RefusedRecord(NOT_AN_OBJECT) from None
    node = given.get("node")
    node = _name(node) if isinstance(node, str) else ""
    if not isinstance(given.get("kind"), str):
        raise RefusedRecord(NO_KIND, node) from None
    if given["kind"] in KINDS:
        raise RefusedRecord(_reason(error, 1), node) from None
