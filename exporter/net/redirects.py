"""Questions over HTTP that go where they are sent: a password or a token in their headers is for nobody else."""

from __future__ import annotations

import urllib.error
import urllib.request
from email.message import Message
from typing import IO


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an error that names the address. urllib's own handler would send it all the headers."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        raise urllib.error.HTTPError(req.full_url, code, f"{msg}: it leads to {newurl}; give that address", headers, fp)
