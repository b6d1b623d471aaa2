"""What is installed is what we ship: the wheel has the signatures inside and needs nothing of the checkout."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
from importlib.resources import files
from pathlib import Path

import pytest

import exporter
from exporter.config import packs
from exporter.core.matching.pipeline import Pipeline

ROOT = Path(__file__).parent.parent


def is_editable() -> bool:
    """Whether the checkout itself is installed (PEP 610). `make test` never does that; an editor's environment may."""
    origin = importlib.metadata.distribution("gpufault").read_text("direct_url.json")
    return bool(json.loads(origin or "{}").get("dir_info", {}).get("editable"))


on_the_wheel = pytest.mark.skipif(is_editable(), reason="the checkout is installed, not the wheel: run make test")


def output(*command: str | Path, cwd: Path) -> str:
    """What a command prints; any exit code but 0 fails with what it said."""
    done = subprocess.run(command, check=False, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@on_the_wheel
def test_tests_and_what_they_start_run_on_the_wheel_and_not_on_the_checkout() -> None:
    assert "site-packages" in Path(exporter.__file__).parts
    started_here = output(sys.executable, "-c", "import exporter; print(exporter.__file__)", cwd=ROOT)
    assert started_here == f"{exporter.__file__}\n"


@on_the_wheel
def test_the_wheel_has_every_signature_inside() -> None:
    packs = {path.relative_to(ROOT / "signatures"): path for path in ROOT.glob("signatures/**/*") if path.is_file()}
    assert packs
    for name, path in packs.items():
        assert (files("exporter") / "_signatures").joinpath(*name.parts).read_bytes() == path.read_bytes()


@on_the_wheel
def test_the_wheel_has_the_databases_of_all_gates() -> None:
    pipeline = Pipeline(packs.load())
    assert set(pipeline.catalogue.databases) == set(pipeline.databases())


def test_the_version_is_said_once() -> None:
    assert importlib.metadata.version("gpufault") == exporter.__version__


@pytest.mark.heavy
def test_the_wheel_and_the_locked_packages_are_all_that_is_needed(tmp_path: Path) -> None:
    output(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", ROOT, cwd=tmp_path)
    (sdist,) = tmp_path.glob("dist/*.tar.gz")
    (wheel,) = tmp_path.glob("dist/*.whl")  # built from the unpacked sdist, so that one is complete too
    with tarfile.open(sdist) as archive:
        assert {f"gpufault-{exporter.__version__}/{name}" for name in ("LICENSE", "CHANGELOG.md")} <= set(
            archive.getnames()
        )

    environment, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    output(sys.executable, "-m", "venv", environment, cwd=empty)
    pip, python, gpufault = (environment / "bin" / name for name in ("pip", "python", "gpufault"))
    output(pip, "install", "--require-hashes", "--requirement", ROOT / "requirements.lock", cwd=empty)
    output(pip, "install", "--no-index", wheel, cwd=empty)  # fails where the lock lacks a dependency

    assert exporter.__version__ in output(gpufault, "--version", cwd=empty)
    assert "scan" in output(gpufault, "--help", cwd=empty)
    output(gpufault, "facts", "--format", "json", cwd=empty)
    output(gpufault, "scan", "-", cwd=empty)
    count = "from importlib.resources import files; print(len(list((files('exporter') / '_signatures').iterdir())))"
    assert int(output(python, "-c", count, cwd=empty)) == len(os.listdir(ROOT / "signatures"))
