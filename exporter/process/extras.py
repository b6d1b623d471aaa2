"""How to install the packages of an extra, for the way in which gpufault was installed here."""

import json
import shlex
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from exporter.core.text.phrases import listed

FLEET = ("duckdb", "numpy", "scipy")  # the packages of the extra `fleet`, as they are imported
DEBIAN = Path("/usr/lib/gpufault")  # where the Debian package puts its environment
ROOT = Path(__file__).resolve().parents[2]  # that of the checkout, or of the installed packages


def missing_fleet_packages() -> str:
    """All packages of the extra `fleet` that are missing, and how to install them."""
    names = [name for name in FLEET if _is_missing(name)]
    return f"{listed(names)} {'are' if len(names) > 1 else 'is'} missing; {how_to_install('fleet')}"


def how_to_install(extra: str, root: Path = ROOT) -> str:
    """The command that installs an extra beside this gpufault: `python3 -m pip install '/root/gpufault[fleet]'`."""
    if root.is_relative_to(DEBIAN):
        if extra == "fleet":
            return "install the package gpufault-fleet of the same version: apt install ./gpufault-fleet_*.deb"
        return f"the Debian package does not contain it; pip install 'gpufault[{extra}]' in a virtual environment"
    return f"{shlex.quote(sys.executable)} -m pip install {shlex.quote(f'{_origin(root)}[{extra}]')}"


def _origin(root: Path) -> str:
    """What pip installed gpufault from: a checkout, a wheel, or an index, which knows it by its name."""
    if (root / "pyproject.toml").is_file():
        return str(root)
    with suppress(PackageNotFoundError, OSError, ValueError, KeyError, TypeError):
        url = urlsplit(json.loads(distribution("gpufault").read_text("direct_url.json") or "")["url"])
        if url.scheme == "file" and Path(unquote(url.path)).exists():
            return unquote(url.path)
    return "gpufault"


def _is_missing(name: str) -> bool:
    return sys.modules[name] is None if name in sys.modules else find_spec(name) is None
