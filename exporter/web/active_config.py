"""The web configuration in force: read at the start, read again when its files change, replaced only by a whole one.

A file that is broken changes nothing. Nor does one that would open the endpoint: an editor that has just emptied the
file to write it anew must not, for that moment, let everybody in.
"""

from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from exporter.core.text.problems import InvalidInput, Problem
from exporter.core.text.validation import LocatedError
from exporter.core.text.yaml_text import MAX_CHARS, parse
from exporter.store.safe_open import read_start
from exporter.web import config as web_config
from exporter.web.config import TlsConfig, WebConfig
from exporter.web.tls import context_of
from exporter.web.users import Users

MAX_BYTES = MAX_CHARS + 1  # of a file: of a larger one so many that parsing it says so


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for a connection or request that begins now. By default: plain HTTP, for everybody."""

    config: WebConfig = field(default_factory=WebConfig)
    context: ssl.SSLContext | None = None
    users: Users = field(default_factory=lambda: Users({}))

    @property
    def told(self) -> str:
        """What holds, in a few words."""
        tls = self.config.tls_server_config
        how = f"TLS, {tls.client_auth_type}" if tls else "no TLS"
        return f"{how}, {len(self.config.basic_auth_users) or 'no'} users"


class ActiveConfig:
    """The settings now (`settings`), and how reading them last went. `look` is called from one thread at a time."""

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time.time) -> None:
        """Read the file; None: the defaults, for ever. Raises InvalidInput with every problem, OSError."""
        self._path = path
        self._clock = clock
        self.settings = Settings()
        self.problems: Sequence[Problem] = ()
        self.changed = clock()
        self._seen = b""
        if path is not None:
            self._seen = self._contents(self.settings)
            self.settings = _read(path, None)
            self._seen = self._contents(self.settings)

    @property
    def is_file(self) -> bool:
        return self._path is not None

    def look(self) -> bool:
        """Read again what has changed; True if something had, whether it is in force now or is told in `problems`."""
        if self._path is None:
            return False
        contents = self._contents(self.settings)
        if contents == self._seen:
            return False
        self._seen = contents
        try:
            self.settings = _read(self._path, self.settings)
        except InvalidInput as error:
            self.problems = error.problems
        except OSError as error:
            self.problems = (self._problem(f"{error.strerror}; give a file that gpufault may read"),)
        except Exception as error:  # our own bug, which must not end the server
            self.problems = (self._problem(f"cannot be read: {error!r}; please report it"),)
        else:
            self.problems = ()
            self.changed = self._clock()
            self._seen = self._contents(self.settings)
        return True

    def _problem(self, what: str) -> Problem:
        return Problem(str(self._path), 1, 1, "", what)

    def _contents(self, settings: Settings) -> bytes:
        """A digest of the file and of those that it names. Times would not do: two writes can share one."""
        assert self._path is not None
        tls = settings.config.tls_server_config
        names = (tls.cert_file, tls.key_file, tls.client_ca_file) if tls else ()
        digest = hashlib.blake2b()
        for path in (self._path, *(self._path.parent / name for name in names if name)):
            try:
                digest.update(hashlib.blake2b(read_start(path, MAX_BYTES)).digest())
            except OSError as error:
                digest.update(repr(error.errno).encode())
        return digest.digest()


def _read(path: Path, before: Settings | None) -> Settings:
    document = parse(read_start(path, MAX_BYTES).decode("utf-8", "backslashreplace"), str(path))
    config = web_config.load(document)
    tls = config.tls_server_config
    try:
        context = context_of(tls, path.parent) if tls else None
        if before is not None:
            _opens_nothing(before.config, config)
    except LocatedError as error:
        raise InvalidInput([document.problem(error.loc, str(error))]) from None
    return Settings(config, context, Users(config.basic_auth_users, before.users if before else None))


def _opens_nothing(before: WebConfig, now: WebConfig) -> None:
    """Raises LocatedError if less would be asked of a client than before."""
    then = "restart gpufault if that is meant"
    if before.tls_server_config and not now.tls_server_config:
        raise LocatedError(("tls_server_config",), f"TLS would be switched off; {then}")
    if before.basic_auth_users and not now.basic_auth_users:
        raise LocatedError(("basic_auth_users",), f"everybody would be let in without a password; {then}")
    if _asks_for_certificates(before.tls_server_config) and not _asks_for_certificates(now.tls_server_config):
        raise LocatedError(
            ("tls_server_config", "client_auth_type"), f"clients without a certificate would be let in; {then}"
        )
    if _allowed_names(before.tls_server_config) and not _allowed_names(now.tls_server_config):
        raise LocatedError(
            ("tls_server_config",), f"certificates of any name would be let in, without client_allowed_sans; {then}"
        )


def _asks_for_certificates(tls: TlsConfig | None) -> bool:
    return tls is not None and tls.client_auth_type == "RequireAndVerifyClientCert"


def _allowed_names(tls: TlsConfig | None) -> list[str]:
    return tls.client_allowed_sans if tls else []
