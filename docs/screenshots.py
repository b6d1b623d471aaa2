"""Makes the README's pictures of the two pages of `gpufault demo`, with Chromium: `make screenshots`."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
MAX_BYTES = 300_000
SIZES = {"node": (1280, 1000), "fleet": (1280, 1250)}
DEMO = (
    sys.executable, "-m", "exporter.cli.main", "demo", "--web.listen-address=127.0.0.1:0",
    "--fleet.listen-address=127.0.0.1:0",
)  # fmt: skip
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-device-scale-factor=1",
)  # fmt: skip


def main() -> int:
    """Run the demo until both pages are complete, and take a picture of each."""
    browser = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit("Chromium is missing; on Debian: apt-get install chromium")
    IMAGES.mkdir(exist_ok=True)
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, text=True) as demo:  # noqa: S603 (our own command)
        assert demo.stdout is not None
        try:
            for name, url in zip(SIZES, _pages(demo.stdout), strict=True):
                _shoot(browser, url, IMAGES / f"{name}-page.png", SIZES[name])
        finally:
            demo.send_signal(signal.SIGINT)
    return 0


def _pages(lines: Iterable[str]) -> list[str]:
    """The addresses of both pages, once nothing more is expected on them."""
    told = ""
    for line in lines:
        told += line
        if "Fleet page complete" in told and "Ctrl-C" in told:
            return re.findall(r"^(?:  |Fleet page: )(http://\S+/) ", told, re.MULTILINE)
    sys.exit(f"the demo ended early:\n{told}")


def _shoot(browser: str, url: str, path: Path, size: tuple[int, int]) -> None:
    with tempfile.TemporaryDirectory(
        ignore_cleanup_errors=True
    ) as folder:  # a process of Chromium may outlive it briefly
        picture = Path(folder, "page.png")
        asked = (
            f"--user-data-dir={folder}/profile",
            f"--window-size={size[0]},{size[1]}",
            f"--screenshot={picture}",
            url,
        )
        subprocess.run([browser, *FLAGS, *asked], check=True, capture_output=True, timeout=120)  # noqa: S603
        if (kilobytes := picture.stat().st_size) > MAX_BYTES:
            sys.exit(f"{path}: {kilobytes:,} bytes; at most {MAX_BYTES:,} belong in the README")
        shutil.copyfile(picture, path)
    print(f"{path}: {kilobytes:,} bytes")


if __name__ == "__main__":
    sys.exit(main())
