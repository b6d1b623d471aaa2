"""A mail server on loopback that keeps what it is sent: plain, with STARTTLS or with TLS."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default


@dataclass
class MailServer:
    """`refuses`: the reply to DATA, if it is not accepted. `steps`: the commands, without their arguments."""

    port: int = 0
    refuses: str = ""
    security: str = "none"
    context: ssl.SSLContext | None = None
    messages: list[EmailMessage] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)


@contextmanager
def mail_server(
    security: str = "none", context: ssl.SSLContext | None = None, refuses: str = ""
) -> Iterator[MailServer]:  # fmt: skip
    """Serve one client after another."""
    server = MailServer(security=security, context=context, refuses=refuses)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server.port = listening.getsockname()[1]
        thread = threading.Thread(target=_serve, args=(server, listening))
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(server: MailServer, listening: socket.socket) -> None:
    while True:
        try:
            client, _ = listening.accept()
        except OSError:
            return
        with suppress(OSError), ExitStack() as sockets:
            sockets.enter_context(client).settimeout(30)
            if server.security == "tls" and server.context:
                client = sockets.enter_context(server.context.wrap_socket(client, server_side=True))
            _talk(server, client, sockets)


def _talk(server: MailServer, client: socket.socket, sockets: ExitStack) -> None:
    client.sendall(b"220 ready\r\n")
    lines = client.makefile("rb")
    while line := lines.readline():
        step, _, rest = line.decode().strip().partition(" ")
        server.steps.append(step.upper())
        reply = "250 ok"
        match step.upper():
            case "EHLO":
                secure = isinstance(client, ssl.SSLSocket)
                offers = ["here", *(["STARTTLS"] if server.security == "starttls" and not secure else []), "AUTH PLAIN"]
                reply = "\r\n".join([*(f"250-{each}" for each in offers[:-1]), f"250 {offers[-1]}"])
            case "AUTH":
                server.logins.append(base64.b64decode(rest.split()[1]).decode())
                reply = "235 welcome"
            case "RCPT":
                server.recipients.append(rest.partition("<")[2].partition(">")[0])
            case "DATA":
                client.sendall(b"354 go on\r\n")
                data = b""
                while (part := lines.readline()) not in (b".\r\n", b""):
                    data += part[1:] if part.startswith(b".") else part
                if not server.refuses:
                    server.messages.append(message_from_bytes(data, _class=EmailMessage, policy=default))
                reply = server.refuses or "250 taken"
            case "QUIT":
                reply = "221 bye"
            case "STARTTLS":
                reply = "220 go ahead"
        client.sendall(f"{reply}\r\n".encode())
        if step.upper() == "STARTTLS" and server.context:
            client = sockets.enter_context(server.context.wrap_socket(client, server_side=True))
            lines = client.makefile("rb")
        if step.upper() == "QUIT":
            return
