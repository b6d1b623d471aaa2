"""What leaves the node without its secrets: tokens, keys, passwords, e-mail addresses, names of homes.

Errs on the side of hiding: a redacted word costs an SRE a look at the log itself, a leaked token costs more.
"""

from __future__ import annotations

import re

_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # NAME=value and "name": "value" where the name says that it is a secret
        (
            (
                r"(?i)((?:token|secret|passw(?:or)?d|passwd|api_?key|access_?key|private_?key|credential)[\w.-]{0,64}"
                r"[\"']?\s*[=:]\s*[\"']?)(?!\s)[^\s\"',;]{3,}"
            ),
            r"\1[redacted]",
        ),
        (r"(?i)\b(authorization:\s*(?:bearer|basic|token)\s+)\S+", r"\1[redacted]"),
        (r"(?i)\b(bearer\s+)[\w.~+/=-]{16,}", r"\1[redacted]"),
        (r"\b((?:https?|ftp|s3|postgres(?:ql)?|mysql|redis|amqp)://)[^\s/@:]+:[^\s/@]+@", r"\1[redacted]@"),
        # forms that vendors give their tokens, so that they can be found
        (r"\b(?:ghp|gho|ghs|ghu|github_pat|glpat|hf|sk|pk|xox[abpr]|wandb_v1)[-_][A-Za-z0-9_-]{16,}\b", "[redacted]"),
        (r"\bAKIA[0-9A-Z]{16}\b", "[redacted]"),
        (r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}\b", "[redacted]"),
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*", "[redacted]"),
        (r"[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+\b", "[e-mail]"),
        (r"(/(?:home|users|Users|u|nfs/home)/)(?!\[user\])[^/\s\"':,;)\]]+", r"\1[user]"),
    )
)


def redact(text: str) -> str:
    """The text without what must not leave the node. Doing it twice changes nothing."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text
