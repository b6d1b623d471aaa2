"""The active web configuration (TLS, users, headers), reloaded when one of its files changes.

An invalid file is rejected and the active settings stay. So is a file that would remove protection, such as TLS or the
users: an editor may empty a file before it writes the new content.
"""

from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.core.text.problems import MAX_CHARS, InvalidInput, LocatedError, Problem
from exporter.store.safe_open import read_start
from exporter.web.users import Users

if TYPE_CHECKING:
    from exporter.net.tokens import PublicKey
    from exporter.web.config import TlsConfig, WebConfig

MAX_BYTES = MAX_CHARS + 1  # read from a file: enough for the parser to reject a file that is too long


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for new connections and requests. Default: plain HTTP without users."""

    config: WebConfig | None = None
    context: ssl.SSLContext | None = None
    users: Users = field(default_factory=lambda: Users({}))
    token_keys: tuple[PublicKey, ...] = ()

    @property
    def tls(self) -> TlsConfig | None:
        return self.config.tls_server_config if self.config else None

    def is_administrator(self, name: str) -> bool:
        """Whether a user or a name in a client's certificate may reload and clear faults."""
        return self.config is not None and name in self.config.administrators

    @property
    def headers(self) -> dict[str, str]:
        """The configured response headers, by name."""
        return self.config.headers if self.config else {}

    @property
    def summary(self) -> str:
        """A short description, such as `TLS, NoClientCert, 2 users`."""
        users = len(self.config.basic_auth_users) if self.config else 0
        security = f"TLS, {self.tls.client_auth_type}" if self.tls else "no TLS"
        return f"{security}, {users or 'no'} user{'' if users == 1 else 's'}"


class ActiveConfig:
    """The active settings (`settings`), and the problems of the last file that was rejected (`problems`)."""

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time.time) -> None:
        """Read the file at `path`; None: use the defaults. Raises InvalidInput with all problems, or OSError."""
        self._path = path
        self._clock = clock
        self.settings = Settings()
        self.problems: Sequence[Problem] = ()
        self.applied_at = clock()
        self._digest = b""
        if path is not None:
            self._digest = self._digest_files(self.settings)
            self.settings = _read(path, None)
            self._digest = self._digest_files(self.settings)

    @property
    def is_file(self) -> bool:
        return self._path is not None

    def reload_if_changed(self) -> bool:
        """Read changed files and apply them, or set `problems`. True if files have changed. Not for two threads at once."""
        if self._path is None:
            return False
        digest = self._digest_files(self.settings)
        if digest == self._digest:
            return False
        self._digest = digest
        try:
            self.settings = _read(self._path, self.settings)
        except InvalidInput as error:
            self.problems = error.problems
        except OSError as error:
            self.problems = (self._problem(f"{error.strerror}; use a file that gpufault can read"),)
        except Exception as error:  # our own bug, which must not end the server
            self.problems = (self._problem(f"cannot be read: {error!r}; please report it"),)
        else:
            self.problems = ()
            self.applied_at = self._clock()
            self._digest = self._digest_files(self.settings)
        return True

    def _problem(self, message: str) -> Problem:
        return Problem(str(self._path), 1, 1, "", message)

    def _digest_files(self, settings: Settings) -> bytes:
        """A digest of the contents of all files. Modification times are not enough: two writes can have the same."""
        assert self._path is not None
        tls = settings.tls
        names = [tls.cert_file, tls.key_file, tls.client_ca_file] if tls else []
        names.append(settings.config.token_keys_file if settings.config else None)
        digest = hashlib.blake2b()
        for path in (self._path, *(self._path.parent / name for name in names if name)):
            try:
                digest.update(hashlib.blake2b(read_start(path, MAX_BYTES)).digest())
            except OSError as error:
                digest.update(repr(error.errno).encode())
        return digest.digest()


def _read(path: Path, previous: Settings | None) -> Settings:
    # Only where there is a file: pydantic and YAML take 17 MiB of memory.
    from exporter.core.text.yaml_text import parse
    from exporter.web import config as web_config
    from exporter.web.tls import server_context

    document = parse(read_start(path, MAX_BYTES).decode("utf-8", "backslashreplace"), str(path))
    config = web_config.load(document)
    tls = config.tls_server_config
    try:
        context = server_context(tls, path.parent) if tls else None
        if previous is not None and previous.config is not None:
            _check_protection(previous.config, config)
        keys = _token_keys(path.parent / config.token_keys_file) if config.token_keys_file else ()
    except LocatedError as error:
        raise InvalidInput([document.problem(error.loc, str(error))]) from None
    users = Users(config.basic_auth_users, previous.users if previous else None)
    return Settings(config, context, users, keys)


def _token_keys(path: Path) -> tuple[PublicKey, ...]:
    from exporter.net.tokens import public_keys  # where there are any: cryptography takes 8 MiB of memory

    try:
        return tuple(public_keys(read_start(path, MAX_BYTES).decode("ascii", "replace")))
    except OSError as error:
        raise LocatedError(
            ("token_keys_file",), f"{path}: {error.strerror}; use a file that gpufault can read"
        ) from None
    except ValueError as error:
        raise LocatedError(("token_keys_file",), f"{path}: {error}") from None


def _check_protection(previous: WebConfig, new: WebConfig) -> None:
    """Raises LocatedError if the new configuration removes a protection."""
    advice = "restart gpufault if this is intended"
    if previous.tls_server_config and not new.tls_server_config:
        raise LocatedError(("tls_server_config",), f"a reload cannot disable TLS; {advice}")
    if previous.basic_auth_users and not new.basic_auth_users:
        raise LocatedError(("basic_auth_users",), f"a reload cannot remove all users; {advice}")
    if _requires_certificates(previous.tls_server_config) and not _requires_certificates(new.tls_server_config):
        raise LocatedError(
            ("tls_server_config", "client_auth_type"), f"a reload cannot admit clients without a certificate; {advice}"
        )
    if _allowed_names(previous.tls_server_config) and not _allowed_names(new.tls_server_config):
        raise LocatedError(("tls_server_config",), f"a reload cannot remove client_allowed_sans; {advice}")


def _requires_certificates(tls: TlsConfig | None) -> bool:
    return tls is not None and tls.client_auth_type == "RequireAndVerifyClientCert"


def _allowed_names(tls: TlsConfig | None) -> list[str]:
    return tls.client_allowed_sans if tls else []
