"""The review as messages: blocks for a Slack-compatible webhook, and an e-mail. Both are made of the Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any

from exporter.core.text.phrases import printable
from exporter.fleet.report.wording import dates
from exporter.fleet.review.values import Overview

MAX_BLOCK_CHARS = 2900  # Slack takes 3,000
MAX_SUBJECT_CHARS = 200
_ESCAPED = re.compile(r"\\([\\`*\[\]|~#!_])")


def slack_payload(found: Overview, markdown: str, link: str = "") -> dict[str, Any]:
    """The JSON body. Nothing in it mentions a person or a channel, or becomes a link, but `link`."""
    title, _, *rest = markdown.splitlines()
    texts = [_chat_text(line) for line in rest]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": plain(title.strip("*"))[:150]}}
    ]
    blocks += [
        {"type": "section", "text": {"type": "mrkdwn", "verbatim": True, "text": text}} for text in _parts(texts)
    ]
    if link:
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": f"<{link}|Open the fleet page>"}})
    return {"text": _chat_text(found.sentence), "blocks": blocks}


def email_message(
    found: Overview, markdown: str, page: str, *, sender: str, recipients: Sequence[str], link: str = ""
) -> EmailMessage:  # fmt: skip
    """The Markdown as text, and the HTML review as an attached file: mail programs drop its style and charts."""
    message = EmailMessage()
    message["From"], message["To"] = sender, ", ".join(recipients)
    message["Subject"] = printable(f"GPU fleet: {found.sentence}")[:MAX_SUBJECT_CHARS]
    message["Date"] = formatdate()
    message["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2] or None)
    message["Auto-Submitted"] = "auto-generated"
    text = "\n".join(plain(line) for line in markdown.splitlines())
    message.set_content(text + (f"\n\nFleet page: {link}" if link else "") + "\n")
    name = f"gpu-fleet-review-{dates(found.window).replace(' ', '-')}.html"
    message.add_attachment(page, subtype="html", filename=name)
    return message


def plain(text: str) -> str:
    """A line of the review's Markdown as text."""
    text = re.sub(r"\*\*(.+)\*\*$", r"\1", text) if text.startswith("**") else text
    return html.unescape(_ESCAPED.sub(r"\1", text))


def _chat_text(line: str) -> str:
    is_title = line.startswith("**")
    text = plain(line).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = text.replace("@", "@\u200b")  # Mattermost takes @all for a mention, without any markup
    if is_title:
        return f"*{text}*"
    return f"• {text[2:]}" if text.startswith("- ") else text


def _parts(lines: Sequence[str]) -> list[str]:
    """The lines as texts that a block can hold, a section of the review each where that fits."""
    parts: list[str] = []
    for section in "\n".join(lines).split("\n\n"):
        while section:
            cut = len(section) if len(section) <= MAX_BLOCK_CHARS else section.rfind("\n", 1, MAX_BLOCK_CHARS)
            cut = cut if cut > 0 else MAX_BLOCK_CHARS
            parts.append(section[:cut])
            section = section[cut:].lstrip("\n")
    return parts
