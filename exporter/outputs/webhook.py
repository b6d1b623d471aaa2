"""Encodes incidents as webhook requests, signed according to Standard Webhooks if a key is configured.

Source: github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md. docs/outputs.md describes the body.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from exporter import __version__
from exporter.core.diagnosis.records import line, rfc3339
from exporter.net.http import Response

FORMAT_VERSION = 1


class WebhookFormat:
    """Encodes webhook requests."""

    def __init__(self, key: bytes | None = None) -> None:
        """key: signs the requests; None for no signature."""
        self._signer = None
        if key is not None:
            from standardwebhooks import Webhook

            self._signer = Webhook(key)

    def request(self, records: Sequence[Mapping[str, Any]], now: float) -> tuple[bytes, dict[str, str]]:
        """Body and headers. The same incidents get the same idempotency key each time they are sent."""
        message = {
            "version": FORMAT_VERSION,
            "sender": f"gpufault/{__version__}",
            "sent": rfc3339(now),
            "incidents": list(records),
        }
        body = line(message).encode()
        key = _idempotency_key(records)
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        if self._signer is not None:
            timestamp = int(now)
            signature = self._signer.sign(key, datetime.fromtimestamp(timestamp, UTC), body.decode())
            headers |= {"webhook-id": key, "webhook-timestamp": str(timestamp), "webhook-signature": signature}
        return body, headers

    def rejected(self, _response: Response) -> tuple[int, str]:
        """None: a webhook accepts or refuses a request as a whole."""
        return 0, ""


def record_uid(record: Mapping[str, Any]) -> str:
    """Identifies a record, the same each time it is sent. An incident that has grown is a new record with more lines."""
    return f"{record['id']}.{record.get('lines', 0)}"


def _idempotency_key(records: Sequence[Mapping[str, Any]]) -> str:
    if len(records) == 1:
        return record_uid(records[0])
    return hashlib.sha256(" ".join(map(record_uid, records)).encode()).hexdigest()[:32]
