"""What is sent, read with the receivers' own means: OpenTelemetry's definitions, a library of Standard Webhooks."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, Parse
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from standardwebhooks import Webhook

from exporter.core.diagnosis.records import without_secrets
from exporter.core.text.redact import redact
from exporter.net.http import Response
from exporter.outputs.otlp import MAX_ATTRIBUTES, MAX_ITEMS, MAX_TEXT, OtlpFormat
from exporter.outputs.webhook import WebhookFormat

NOW = 1_700_000_100.0
RECORD: dict[str, Any] = {
    "kind": "incident", "id": "5f1c", "time": "2023-11-14T22:13:20.250Z", "time_source": "log", "node": "gpu-07",
    "signature": "nv_xid_79_fell_off_bus", "root_cause": "unknown", "severity": "critical", "vendor": "nvidia",
    "layer": "driver", "source": "kernel", "path": "/dev/kmsg", "line": 7, "offset": 1 << 40, "lines": 3,
    "last_time": "2023-11-14T22:13:21.000Z", "text": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "captures": {"pid": "4242"}, "gpu": "0000:3b:00.0",
    "job": {"id": "77", "user": None, "rank": "3", "kind": "slurm", "confidence": "high"}, "ranks": ["3", "4"],
    "role": "root", "caused_by": None, "verdict": "infrastructure",
    "evidence": [{"what": "driver_version", "value": "550.54", "why": "older than 555"}],
    "remediation": "Reset the GPU.", "references": ["https://docs.nvidia.com/deploy/xid-errors/"], "excerpt": ["a", "b"],
    "recorded_time": "2023-11-14T22:13:35.000Z", "late": False,
}  # fmt: skip


def decoded(form: OtlpFormat, *records: dict[str, Any]) -> ExportLogsServiceRequest:
    body, headers = form.request(records, NOW)
    if headers["Content-Type"] == "application/json":
        return Parse(body, ExportLogsServiceRequest())  # refuses what it does not know
    assert headers["Content-Type"] == "application/x-protobuf"
    return ExportLogsServiceRequest.FromString(body)


def plain(value: Any) -> Any:
    """An AnyValue as Python has it."""
    kind = value.WhichOneof("value")
    return [plain(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind)


def attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: plain(pair.value) for pair in pairs}


@pytest.fixture(params=["protobuf", "json"])
def form(request: pytest.FixtureRequest) -> OtlpFormat:
    return OtlpFormat("gpu-07", {"k8s.cluster.name": "prod"}, encoding=request.param)


def test_an_incident_is_a_log_record_of_its_node(form: OtlpFormat) -> None:
    (logs,) = decoded(form, RECORD).resource_logs
    resource = attributes(logs.resource.attributes)
    assert resource.pop("service.version")
    assert resource == {
        "service.name": "gpufault",
        "service.instance.id": "gpu-07",
        "host.name": "gpu-07",
        "k8s.cluster.name": "prod",
    }
    (scope,) = logs.scope_logs
    assert scope.scope.name == "gpufault"
    (log,) = scope.log_records
    assert log.time_unix_nano == 1_700_000_000_250_000_000
    assert log.observed_time_unix_nano == 1_700_000_015_000_000_000
    assert (log.severity_number, log.severity_text) == (21, "critical")  # FATAL
    assert log.event_name == "gpufault.incident"
    assert plain(log.body) == "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    assert attributes(log.attributes) == {
        "log.record.uid": "5f1c.3",
        "log.file.path": "/dev/kmsg",
        "gpufault.id": "5f1c",
        "gpufault.time_source": "log",
        "gpufault.signature": "nv_xid_79_fell_off_bus",
        "gpufault.root_cause": "unknown",
        "gpufault.vendor": "nvidia",
        "gpufault.layer": "driver",
        "gpufault.source": "kernel",
        "gpufault.line": 7,
        "gpufault.offset": 1 << 40,
        "gpufault.lines": 3,
        "gpufault.last_time": "2023-11-14T22:13:21.000Z",
        "gpufault.captures.pid": "4242",
        "gpufault.gpu": "0000:3b:00.0",
        "gpufault.job.id": "77",
        "gpufault.job.rank": "3",
        "gpufault.job.kind": "slurm",
        "gpufault.job.confidence": "high",
        "gpufault.ranks": ["3", "4"],
        "gpufault.role": "root",
        "gpufault.verdict": "infrastructure",
        "gpufault.evidence": ["driver_version = 550.54"],
        "gpufault.remediation": "Reset the GPU.",
        "gpufault.references": ["https://docs.nvidia.com/deploy/xid-errors/"],
        "gpufault.excerpt": ["a", "b"],
        "gpufault.late": False,
    }


def test_json_and_protobuf_say_the_same() -> None:
    forms = [OtlpFormat("gpu-07", {}, encoding=encoding) for encoding in ("protobuf", "json")]
    one, other = (decoded(form, RECORD, RECORD | {"id": "x", "severity": "info"}) for form in forms)
    assert one == other
    assert len(one.resource_logs[0].scope_logs[0].log_records) == 2


def test_what_a_record_holds_has_bounds(form: OtlpFormat) -> None:
    captures = {f"c{n}": "x" for n in range(200)}
    record = RECORD | {"captures": captures, "path": "/" + "p" * 9999, "references": [str(n) for n in range(99)]}
    (log,) = decoded(form, record).resource_logs[0].scope_logs[0].log_records
    assert len(log.attributes) == MAX_ATTRIBUTES
    assert log.dropped_attributes_count > 100
    assert len(attributes(log.attributes)["log.file.path"]) == MAX_TEXT
    del record["captures"]
    (log,) = decoded(form, record).resource_logs[0].scope_logs[0].log_records
    assert len(attributes(log.attributes)["gpufault.references"]) == MAX_ITEMS


def test_a_record_from_elsewhere_with_half_of_the_fields_can_be_sent(form: OtlpFormat) -> None:
    (log,) = decoded(form, {"kind": "incident", "id": "a"}).resource_logs[0].scope_logs[0].log_records
    assert log.time_unix_nano == int(NOW) * 10**9
    assert attributes(log.attributes) == {"log.record.uid": "a.0", "gpufault.id": "a"}


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["text", "severity", "line", "lines", "time", "captures", "job", "evidence", "gpu", "path"]
            ),
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers()
                | st.floats()
                | st.text(st.characters(exclude_categories=["Cs"])),
                lambda inner: (
                    st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=4)
                ),
                max_leaves=8,
            ),
        ),
        max_size=4,
    )
)
def test_whatever_a_record_holds_both_encodings_are_read_and_equal(records: list[dict[str, Any]]) -> None:
    known = [{**record, "id": "i"} for record in records]
    one, other = (decoded(OtlpFormat("n", {}, encoding=e), *known) for e in ("protobuf", "json"))
    assert MessageToDict(one) == MessageToDict(other)


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_a_partial_success_says_how_many_were_not_taken(encoding: Any) -> None:
    response = ExportLogsServiceResponse()
    response.partial_success.rejected_log_records = 3
    response.partial_success.error_message = "too old: ü"
    body = response.SerializeToString()
    if encoding == "json":
        body = json.dumps(MessageToDict(response)).encode()
    form = OtlpFormat("n", {}, encoding=encoding)
    assert form.rejected(Response(200, {}, body)) == (3, "too old: ü")
    assert form.rejected(Response(200, {}, ExportLogsServiceResponse().SerializeToString())) == (0, "")


@given(st.binary(max_size=60), st.sampled_from(["protobuf", "json"]))
def test_whatever_a_receiver_answers_is_read_as_something(body: bytes, encoding: Any) -> None:
    count, words = OtlpFormat("n", {}, encoding=encoding).rejected(Response(200, {}, body))
    assert isinstance(count, int)
    assert isinstance(words, str)


def test_a_webhook_carries_the_record_as_the_journal_has_it() -> None:
    body, headers = WebhookFormat().request([RECORD], NOW)
    message = json.loads(body)
    assert message.pop("sender").startswith("gpufault/")
    assert message == {"version": 1, "sent": "2023-11-14T22:15:00.000Z", "incidents": [RECORD]}
    assert headers == {"Content-Type": "application/json", "Idempotency-Key": "5f1c.3"}


@pytest.mark.parametrize("form", [WebhookFormat(), OtlpFormat("gpu-07", {}, encoding="json")], ids=["webhook", "otlp"])
def test_control_and_bidi_characters_are_escaped_in_json(form: WebhookFormat | OtlpFormat) -> None:
    text = "fault\x9b31m \u202e \u2066 \u2028 \x85 “ü”"
    body, _ = form.request([RECORD | {"text": text, "job": {"id": text}}], NOW)
    assert body.decode().isprintable()
    assert text in leaves(json.loads(body))


def leaves(value: Any) -> list[Any]:
    """All values of a JSON document."""
    if isinstance(value, dict):
        value = list(value.values())
    return [found for item in value for found in leaves(item)] if isinstance(value, list) else [value]


def test_the_key_of_a_request_is_that_of_its_incidents_and_of_how_far_they_have_grown() -> None:
    def key(*records: dict[str, Any], now: float = NOW) -> str:
        return WebhookFormat().request(records, now)[1]["Idempotency-Key"]

    other, grown = RECORD | {"id": "a"}, RECORD | {"lines": 4}
    assert key(RECORD, now=NOW + 60) == key(RECORD)
    assert key(RECORD, other) == key(RECORD, other, now=NOW + 60)
    assert len({key(RECORD), key(grown), key(other), key(RECORD, other), key(other, RECORD)}) == 5


def test_a_signature_is_one_of_standard_webhooks() -> None:
    import time

    key = bytes(range(32))
    body, headers = WebhookFormat(key).request([RECORD], time.time())
    receiver = Webhook("whsec_" + base64.b64encode(key).decode())
    assert receiver.verify(body, headers)["incidents"] == [RECORD]
    with pytest.raises(Exception, match="No matching signature"):
        receiver.verify(body.replace(b"gpu-07", b"gpu-08"), headers)


def test_a_signature_covers_id_time_and_body() -> None:
    """Computed here from the specification: the library must not be its own judge."""
    key = bytes(range(32))
    body, headers = WebhookFormat(key).request([RECORD], NOW)
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    assert (headers["webhook-timestamp"], headers["webhook-signature"]) == ("1700000100", f"v1,{expected}")


@given(
    st.text(max_size=80)
    | st.sampled_from(["token=abc", "user: bob@example.com", "HF_TOKEN='x y'", "password: [redacted]"])
)
def test_what_was_redacted_stays_as_it_is(text: str) -> None:
    assert redact(redact(text)) == redact(text)


def test_hiding_twice_changes_nothing_of_a_record() -> None:
    once = without_secrets(
        RECORD | {"text": "token=ghp_" + "a" * 36, "excerpt": ["PASSWORD=hunter2 mail a@b.org /home/bob/x"]}
    )
    assert once["text"] == "token=[redacted]"
    assert without_secrets(once) == once
