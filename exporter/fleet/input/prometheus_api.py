"""Client of the query API that Prometheus, Thanos, Mimir and VictoriaMetrics share."""

import base64
import json
import math
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from exporter.core.diagnosis.records import writable
from exporter.net.credentials import client_context
from exporter.net.redirects import NoRedirects

TIMEOUT_SECONDS = 120.0  # Prometheus' own --query.timeout
MAX_ANSWER_BYTES = 512 << 20


class NoAnswer(OSError):
    """The API could not be reached, or refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series: its labels and its samples as (time, value), at least one, of finite numbers."""

    labels: Mapping[str, str]
    samples: list[tuple[float, float]]


@dataclass(slots=True)
class Api:
    """One API. `warnings` collects the warnings of its answers; with any, the result is incomplete."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    context: ssl.SSLContext | None = None
    warnings: dict[str, None] = field(default_factory=dict)

    def at(self, query: str, time: float) -> list[Series]:
        """The answer to a query at one time. Raises NoAnswer."""
        return self._ask("query", {"query": query, "time": f"{time:.3f}"})

    def over(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """The answer over a range. Raises NoAnswer."""
        return self._ask(
            "query_range", {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        )

    def _ask(self, kind: str, form: Mapping[str, str]) -> list[Series]:
        # Thanos leaves out stores that do not answer unless it is told not to; the others ignore the parameter.
        body = urllib.parse.urlencode({**form, "partial_response": "false", "dedup": "true"}).encode()
        request = urllib.request.Request(f"{self.url.rstrip('/')}/api/v1/{kind}", body, dict(self.headers))  # noqa: S310 (its scheme is checked by `connect`)
        try:
            opener = urllib.request.build_opener(NoRedirects, urllib.request.HTTPSHandler(context=self.context))
            with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                data = json.loads(answer.read(MAX_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            raise NoAnswer(f"{self.url}: {error.code} {_reason(error)}; the query was {form['query']}") from error
        except (ValueError, RecursionError) as error:
            raise NoAnswer(f"{self.url}: no JSON, so no Prometheus API; the query was {form['query']}") from error
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise NoAnswer(f"{self.url}: {getattr(reason, 'strerror', None) or reason}") from error
        except HTTPException as error:
            raise NoAnswer(f"{self.url}: no HTTP, or half an answer: {str(error) or repr(error)}") from error
        try:
            return self._result(data)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise NoAnswer(f"{self.url}: no answer of a Prometheus API; the query was {form['query']}") from error

    def _result(self, data: Any) -> list[Series]:
        """The series of an answer. Raises KeyError, TypeError or ValueError if it is malformed."""
        if data["status"] != "success":
            raise ValueError(data["status"])
        if data.get("isPartial"):  # VictoriaMetrics
            self.warnings["the answer is partial"] = None
        self.warnings.update(dict.fromkeys(str(entry) for entry in data.get("warnings") or ()))
        return [series for entry in data["data"]["result"] if (series := _series(entry)).samples]


def connect(
    url: str, *, user: str | None = None, password: str = "", token: str | None = None, tenant: str | None = None,
    ca_file: str | None = None, certificate: tuple[str, str | None] | None = None,
) -> Api:  # fmt: skip
    """An API by its address and credentials. Raises ValueError, OSError (unreadable certificate)."""
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme not in ("http", "https"):
        raise ValueError(f"{url!r} is not an http:// or https:// address")
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if user is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    if tenant is not None:
        headers["X-Scope-OrgID"] = tenant
    context = client_context(ca_file, *(certificate or (None, None))) if scheme == "https" else None
    return Api(url, headers, context)


def _series(data: Mapping[str, Any]) -> Series:
    samples = [(float(time), float(value)) for time, value in data.get("values") or [data["value"]]]
    labels = {name: writable(value) for name, value in data["metric"].items()}
    return Series(labels=labels, samples=[sample for sample in samples if math.isfinite(sum(sample))])


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(4096))["error"])
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        return str(error.reason)
