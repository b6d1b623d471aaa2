"""The journal's segments over HTTP, for a fleet service that copies them.

`/api/v1/journal` is the list of segments, `/api/v1/journal/NUMBER?offset=0&bytes=4194304` a range of complete lines.
Only the last segment of a list grows. A client that has read an earlier one to the size in the list has all of it.
"""

import asyncio
import gzip
import hashlib
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client.exposition import gzip_accepted
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from exporter.core.diagnosis.records import line
from exporter.core.text.phrases import printable
from exporter.store.journal import MAX_RANGE_BYTES, list_segments, read_range
from exporter.web.interface import NodeView
from exporter.web.readers import Readers

PATH = "/api/v1/journal"
MAX_READERS = 2  # requests that read and compress at a time: each takes 4 MiB and 40 ms of the processor
MAX_OFFSET = 1 << 40
FORBIDDEN = (
    "the journal is for authenticated clients; configure users or client certificates (--web.config.file), or trust the "
    "network with --web.readers=everyone\n"
)


def journal_routes(view: NodeView, readers: Readers) -> Sequence[Route]:
    limiter = asyncio.Semaphore(MAX_READERS)

    def guarded(read: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            if not readers.may_read(request.scope):
                return PlainTextResponse(FORBIDDEN, 403)
            async with limiter:
                return await asyncio.to_thread(read, request)

        return answer

    def segments(request: Request) -> Response:
        rows = [{"segment": number, "bytes": size} for number, size in list_segments(view.journal_folder)]
        text = line({"node": view.overview().node, "segments": rows})
        return _entity(request, text.encode(), "application/json")

    def segment(request: Request) -> Response:
        number: int = request.path_params["number"]
        try:
            offset, count = _range(request.query_params)
            data = read_range(view.journal_folder, number, offset, count)
        except ValueError as error:
            return PlainTextResponse(f"{error}\n", 400)
        except FileNotFoundError:
            return PlainTextResponse(f"no segment {number}; it was deleted, or is not written yet\n", 404)
        except OSError as error:
            return PlainTextResponse(f"the journal cannot be read: {error.strerror}\n", 503)
        return _entity(request, data, "application/x-ndjson")

    return Route(PATH, guarded(segments)), Route(f"{PATH}/{{number:int}}", guarded(segment))


def _range(given: QueryParams) -> tuple[int, int]:
    """Offset and number of bytes. Raises ValueError, for people."""
    if unknown := sorted(set(given) - {"offset", "bytes"}):
        raise ValueError(f"{printable(unknown[0])[:80]}: unknown parameter; use offset, bytes")
    offset = _number("offset", given.get("offset", "0"), 0, MAX_OFFSET)
    return offset, _number("bytes", given.get("bytes", str(MAX_RANGE_BYTES)), 1, MAX_RANGE_BYTES)


def _number(name: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 16 and least <= int(text) <= most):
        raise ValueError(f"{name}: not a number from {least} to {most}")
    return int(text)


def _entity(request: Request, body: bytes, content_type: str) -> Response:
    """A body with its entity tag, gzipped if the client accepts that; 304 for a client that has it already."""
    tag = hashlib.blake2b(body, digest_size=16).hexdigest()
    headers = {"ETag": f'"{tag}"', "Vary": "Accept-Encoding", "Cache-Control": "private, no-cache"}
    zipped = bool(gzip_accepted(request.headers.get("accept-encoding", "")))
    if zipped:
        headers |= {"ETag": f'"{tag}-gzip"', "Content-Encoding": "gzip"}
    tags = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if headers["ETag"] in tags or "*" in tags:
        return Response(status_code=304, headers={k: v for k, v in headers.items() if k != "Content-Encoding"})
    data = gzip.compress(body, compresslevel=1, mtime=0) if zipped else body
    return Response(data, headers=headers, media_type=content_type)
