"""An incident, or several, as the body of a webhook, signed as Standard Webhooks has it if there is a key.

Source: github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md. The shape is in docs/outputs.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from exporter import __version__
from exporter.core.diagnosis.records import line, rfc3339
from exporter.outputs.http import Answer

SHAPE_VERSION = 1


class WebhookForm:
    """Requests of a webhook. `key`: of the signature."""

    def __init__(self, key: bytes | None = None) -> None:
        self._signer = None
        if key is not None:
            from standardwebhooks import Webhook

            self._signer = Webhook(key)

    def request(self, records: Sequence[Mapping[str, Any]], now: float) -> tuple[bytes, dict[str, str]]:
        """Body and headers. The same incidents have the same key, however often they are sent."""
        message = {
            "version": SHAPE_VERSION,
            "sender": f"gpufault/{__version__}",
            "sent": rfc3339(now),
            "incidents": list(records),
        }
        body = line(message).encode()
        key = _key_of(records)
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        if self._signer is not None:
            stamp = int(now)
            signature = self._signer.sign(key, datetime.fromtimestamp(stamp, UTC), body.decode())
            headers |= {"webhook-id": key, "webhook-timestamp": str(stamp), "webhook-signature": signature}
        return body, headers

    def rejected(self, _answer: Answer) -> tuple[int, str]:
        return 0, ""


def uid_of(record: Mapping[str, Any]) -> str:
    """What is the same each time a record is sent. An incident that grew is sent again, with more lines."""
    return f"{record['id']}.{record.get('lines', 0)}"


def _key_of(records: Sequence[Mapping[str, Any]]) -> str:
    if len(records) == 1:
        return uid_of(records[0])
    return hashlib.sha256(" ".join(map(uid_of, records)).encode()).hexdigest()[:32]
