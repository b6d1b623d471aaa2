"""The scripts of docs/restarting.md, with programs that only write down how they were called."""

import re
import subprocess
from pathlib import Path

import pytest

from exporter.cli.restart_check import CODES

ROOT = Path(__file__).parents[2]

PAGE = (ROOT / "docs/restarting.md").read_text()
SLURM, TORCHRUN = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)


def called(script: str, folder: Path, restart: str, program: int = 1) -> list[str]:
    """What the script called besides the program, which ends with `program`; its own exit code is the last item."""
    calls = folder / "calls"
    for name, code in {"srun": program, "torchrun": program, "scontrol": 0, "sbatch": 0}.items():
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{calls}\nexit {code}\n')
    (folder / "gpufault").write_text(
        f'#!/bin/sh\ncase "$*" in *avoid) echo gpu-07,gpu-08 ;; esac\nexit {CODES[restart]}\n'
    )
    for program_file in folder.iterdir():
        program_file.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_START_TIME": "1700000000"}
    done = subprocess.run(["bash", "-c", script, "job.sh"], env=environment, check=False)
    return [*calls.read_text().splitlines()[1:], str(done.returncode)]


@pytest.mark.parametrize(
    ("restart", "calls"),
    [
        ("as_is", ["scontrol requeue 7"]),
        ("elsewhere", ["sbatch --exclude=gpu-07,gpu-08 job.sh"]),
        ("after_change", []),
        ("never", []),
        ("unknown", []),
    ],
)
def test_a_batch_script_restarts_what_may_go_well(restart: str, calls: list[str], tmp_path: Path) -> None:
    assert called(SLURM, tmp_path, restart) == [*calls, "1"]
    assert set(CODES) == {"as_is", "elsewhere", "after_change", "never", "unknown"}


def test_a_program_that_ends_well_is_not_asked_about(tmp_path: Path) -> None:
    assert called(SLURM, tmp_path, "as_is", program=0) == ["0"]


@pytest.mark.parametrize("restart", CODES)
def test_torchrun_is_started_again_only_as_it_is(restart: str, tmp_path: Path) -> None:
    again = ["torchrun --max-restarts=0 train.py"] * 2 if restart == "as_is" else []
    assert called(TORCHRUN, tmp_path, restart)[:-1] == again


def test_the_page_has_the_exit_codes() -> None:
    assert dict(re.findall(r"\| `(\w+)` \| (\d) \|", PAGE)) == {word: str(code) for word, code in CODES.items()}
