"""Refuses HTTP redirects, so that passwords and tokens reach only the server that the user named."""

import urllib.error
import urllib.request
from email.message import Message
from typing import IO


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Raises HTTPError with the new address. urllib's own handler would send all headers there."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        raise urllib.error.HTTPError(req.full_url, code, f"{msg}: redirects to {newurl}; use that address", headers, fp)
