"""Asks daemons whether they answer: `ask.py HOST:PORT/PATH…`, for probes and health checks, since the image has no curl.

Exit code 0 when each one answers 200, or asks for a password or a certificate, which a probe does not have: whoever
answers so is alive. TLS is tried where plain HTTP is not understood; who it is does not matter here, so no certificate is
checked. Knows nothing of gpufault and imports nothing of it: it runs every few seconds, beside jobs.
"""

import http.client
import ssl
import sys

SECONDS = 8.0  # below the ten seconds that the chart's probes and the image's health check give


def ask(address: str) -> str | None:
    """What is wrong with `HOST:PORT/PATH`; None if nothing is."""
    host, _, path = address.partition("/")
    plain = http.client.HTTPConnection(host, timeout=SECONDS)
    try:
        return told(plain, path)
    except (http.client.HTTPException, ConnectionResetError):
        pass  # what speaks TLS answers with an alert, or closes
    except OSError as error:
        return str(error)
    finally:
        plain.close()
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    secure = http.client.HTTPSConnection(host, timeout=SECONDS, context=context)
    try:
        return told(secure, path)
    except ssl.SSLError as error:
        return None if "CERTIFICATE_REQUIRED" in str(error) else str(error)
    except (http.client.HTTPException, OSError) as error:
        return str(error) or type(error).__name__
    finally:
        secure.close()


def told(connection: http.client.HTTPConnection, path: str) -> str | None:
    connection.request("GET", f"/{path}")
    answer = connection.getresponse()
    body = answer.read(4096).decode(errors="backslashreplace")
    return None if answer.status in (200, 401) else f"{answer.status} {answer.reason}: {body.strip()}"


def main() -> int:
    if len(sys.argv) < 2:
        print(f"usage: {sys.argv[0]} HOST:PORT/PATH…", file=sys.stderr)
        return 2
    wrong = [(address, what) for address in sys.argv[1:] if (what := ask(address)) is not None]
    for address, what in wrong:
        print(f"{address}: {what}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
