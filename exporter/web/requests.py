"""What requests tell about who sends them."""

from __future__ import annotations

from starlette.requests import Request


def is_from_web_page(request: Request) -> bool:
    """Whether a browser sends the request on behalf of a page. Browsers send Origin with each POST.

    None of our pages changes anything. So our own origin is refused too: it may be a foreign name that resolves to this
    host (DNS rebinding).
    """
    return "origin" in request.headers or request.headers.get("sec-fetch-site", "none") != "none"
