"""Redaction: removes tokens, keys, passwords, e-mail addresses, user names and homes from text that leaves the node.

In doubt it redacts: a leaked token costs more than a look at the log. All repetitions are bounded, so the time is linear
in the length of the text. A rule is tried only on a text that holds one of its words, as few texts hold any.
"""

import re
from functools import cache, lru_cache

HIDDEN = "[redacted]"

_IS = r"\\{0,3}[\"']?\s{0,8}(?:=>|[=:])\s{0,8}"  # between a name and its value, in JSON within JSON too
_SET = r"(?:=[\"']?|\\{0,3}[\"']: ?\\{0,3}[\"'])"  # in a shell's environment, or in Python's and JSON's
# What names of secrets hold: HF_TOKEN, client_secret, PGPASSWORD, x-api-key, AWS_SECRET_ACCESS_KEY, DB_PASS. Counts are
# none: max_tokens=4096, "tokens": 12.5, tokens_per_second: 8
_SECRET = (
    rf"(?:token(?!s[\w.-]{{0,32}}{_IS}[0-9.]{{1,12}}(?![\w.-]))|secret|passw(?:or)?d|passwd|passphrase|(?<=_)pass\b|(?<=[_;])pwd\b"
    r"|(?:api|access|private|account|signing)[_-]?key|credential)"
)
_KEY = rf"{_SECRET}[\w.-]{{0,64}}{_IS}"

# Forms that issuers give their tokens so that they can be found, from their own documents on secret scanning.
_TOKENS = (
    r"gh[opsur]_\w{16,255}",  # GitHub
    r"github_pat_\w{16,255}",
    r"gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat|ffct)-[\w.-]{16,300}",  # GitLab
    r"xox[a-z]-[\w-]{10,255}",  # Slack
    r"xapp-[\w-]{10,255}",
    r"(?:hf|api_org)_[A-Za-z0-9]{16,64}",  # Hugging Face
    r"wandb_v[0-9]_\w{16,255}",  # Weights & Biases
    r"(?:AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AROA)[0-9A-Z]{16}",  # AWS
    r"AIza[\w-]{35}",  # Google
    r"ya29\.[\w-]{16,300}",
    r"nvapi-[\w-]{16,255}",  # NVIDIA
    r"(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,255}",  # OpenAI, Anthropic, Stripe
    r"npm_[A-Za-z0-9]{16,64}",
    r"pypi-[\w-]{16,300}",
    r"dckr_pat_[\w-]{16,64}",
    r"dapi[0-9a-f]{32}",  # Databricks
    r"hv[sbr]\.[\w-]{16,300}",  # HashiCorp Vault
    r"gl(?:sa|c)_[\w+/]{16,300}={0,2}",  # Grafana
    r"gsk_[A-Za-z0-9]{16,64}",  # Groq
    r"xai-[A-Za-z0-9]{16,255}",  # xAI
    r"pplx-[A-Za-z0-9]{16,64}",  # Perplexity
    r"rpa_[A-Za-z0-9]{16,64}",  # RunPod
    r"lsv2_[a-z]{2}_\w{16,64}",  # LangSmith
    r"tskey-[\w-]{16,255}",  # Tailscale
    r"do[opr]_v1_[0-9a-f]{16,64}",  # DigitalOcean
    r"AGE-SECRET-KEY-1[0-9A-Z]{16,64}",
    r"SG\.[\w-]{16,32}\.[\w-]{16,64}",  # SendGrid
    r"[0-9]{8,10}:AA[\w-]{33}",  # Telegram
    r"eyJ[\w-]{8,4096}\.[\w-]{8,4096}(?:\.[\w-]{0,4096})?",  # JSON Web Token
)

# A user and a group, as container runtimes take them: by number, by a name that is a group on every node, by a variable.
_GROUP = r"(?:root|video|render|users|nogroup|nobody|\$\{?[A-Z_]{1,32}\}?)"
_OWNER = rf"(?:[0-9]{{1,10}}:[0-9]{{1,10}}|[\w.${{}}-]{{1,64}}:{_GROUP})(?![^\s\"',;)\]])"

_PRIVATE_KEY = "[A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?"

# Words in lower case, one of which the pattern needs (none: it is always tried); the pattern; what replaces it. Those of
# a pattern that ignores case end before an i: it takes a dotless one for it, which no lower case does.
Rule = tuple[tuple[str, ...], str, str]

_NAMES = ("token", "secret", "passw", "passphrase", "_pass", "pwd", "key", "credent")  # _SECRET needs one
_SECRETS: tuple[Rule, ...] = (
    (("-----begin",), rf"(?s)-----BEGIN {_PRIVATE_KEY}-----.*?(?:-----END {_PRIVATE_KEY}-----|\Z)", HIDDEN),
    (
        ("author",),
        r"(?i)\b(authorization\\?[\"']?\s{0,8}[=:]\s{0,8}\\?[\"']?(?:[a-z]{1,16}\s{1,8})?)[^\s\"',;]{3,4096}",
        rf"\1{HIDDEN}",
    ),
    (
        ("bearer", "bas", "token"),
        r"(?i)\b((?:bearer|basic|token)\s{1,8})(?=[\w.~+/-]{0,4096}[0-9=])[\w.~+/=-]{16,4096}",
        rf"\1{HIDDEN}",
    ),
    (("cook",), r"(?i)((?<![a-z])(?:set-)?cookie:\s{0,8})[^\n\"']{1,4096}", rf"\1{HIDDEN}"),
    # NAME=value, "name": "value", --name value, whose name says that it is a secret; quotes may hold spaces
    (_NAMES, rf"(?i)({_KEY}\\{{1,3}}[\"'])[^\"'\\\n]{{1,4096}}", rf"\1{HIDDEN}"),
    (_NAMES, rf"(?i)({_KEY}\")(?:[^\"\\\n]|\\.){{1,4096}}", rf"\1{HIDDEN}"),
    (_NAMES, rf"(?i)({_KEY}')(?:[^'\\\n]|\\.){{1,4096}}", rf"\1{HIDDEN}"),
    (_NAMES, rf"(?i)({_KEY})(?!\s|\\{{1,3}}[\"'])[^\s\"',;&]{{3,4096}}", rf"\1{HIDDEN}"),
    (
        _NAMES,
        rf"(?i)((?<![\w-])--?[\w-]{{0,64}}?{_SECRET}[\w-]{{0,32}}\s{{1,8}})[^\s-]\S{{1,4096}}",
        rf"\1{HIDDEN}",
    ),
    (("sshpass",), r"(\bsshpass\s{1,8}-p\s{0,8})\S{1,256}", rf"\1{HIDDEN}"),
    # curl -u ada:secret, but not docker run -u 1000:1000 or root:video or $UID:$GID
    (
        ("-u", "user"),
        rf"((?<![\w-])(?:-u|--(?:proxy-)?user)[ =]\s{{0,8}}[\"']?)(?!{_OWNER})[^\s:\"']{{1,64}}:[^\s\"']{{1,256}}",
        rf"\1{HIDDEN}",
    ),
    (("_key=",), r"(\b[A-Z][A-Z0-9_]{1,64}_KEY=)(?=[A-Za-z_-]{0,256}[0-9])[\w+/=-]{16,256}", rf"\1{HIDDEN}"),
    (_NAMES, rf"(?i)(<[\w.:-]{{0,64}}{_SECRET}[\w.:-]{{0,32}}>)[^<]{{1,4096}}(?=</)", rf"\1{HIDDEN}"),  # XML
    (
        ("?", "&", ";"),
        r"(?i)([?&;](?:sig|signature|x-(?:amz|goog)-\w{1,32}|key)=)[^\s\"'&;]{8,4096}",
        rf"\1{HIDDEN}",
    ),
    (("://",), r"(://)[^\s/@\"'<>\[]{1,256}@", rf"\1{HIDDEN}@"),
    # a slash in it, or the text was cut off before the @
    (
        ("://",),
        r"(://)[^\s/:@\"'<>\[]{0,64}:(?![0-9]{1,5}(?:[/?#]|\b))[^\s@\"'<>]{1,256}(?:@|\Z)",
        rf"\1{HIDDEN}@",
    ),
    (("hooks.slack.com",), r"(hooks\.slack\.com/(?:services|workflows)/)[\w/]{8,255}", rf"\1{HIDDEN}"),
    (("discord",), r"(discord(?:app)?\.com/api/webhooks/)[\w/-]{8,255}", rf"\1{HIDDEN}"),
    (("wandb",), r"(?i)(wandb[^\n]{0,64}?\b)[0-9a-f]{40}\b", rf"\1{HIDDEN}"),
    ((), rf"(?<![A-Za-z0-9])(?:{'|'.join(_TOKENS)})", HIDDEN),
)
_HOMES = r"(?:/(?:homes?|home[0-9_-]\w{0,32}|[Uu]sers?|u)|\\Users\\?)"
_PERSONAL: tuple[Rule, ...] = (
    (("@",), r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[A-Za-z][\w-]{0,62}", "[e-mail]"),
    (
        ("home", "user", "/u"),
        rf"({_HOMES}(?:/\.?){{0,3}}[/\\])(?!\[user\]|\.\.?[/\\])[^/\\\s\"':,;)\]]{{1,255}}",
        r"\1[user]",
    ),
    (
        ("user", "logname"),
        rf"\b((?:USER|LOGNAME|USERNAME|SUDO_USER|SLURM_JOB_USER){_SET})(?!\[user\])[\w.-]{{1,64}}",
        r"\1[user]",
    ),
)


@cache
def _compiled(rules: tuple[Rule, ...]) -> list[tuple[tuple[str, ...], re.Pattern[str], str]]:
    return [(words, re.compile(pattern), replacement) for words, pattern, replacement in rules]


@lru_cache(256)  # an incident shows a text several times, and many incidents show the same
def redact(text: str) -> str:
    """The text without secrets and personal data. Idempotent."""
    return _replaced(hide_secrets(text), _PERSONAL)


def hide_secrets(text: str) -> str:
    """The text without secrets, for the one who asked for it: names and paths stay, so that they can be used."""
    return _replaced(text, _SECRETS)


def _replaced(text: str, rules: tuple[Rule, ...]) -> str:
    lower = text.casefold()
    for words, pattern, replacement in _compiled(rules):
        if not words or any(word in lower for word in words):
            text = pattern.sub(replacement, text)
    return text
