"""The scripts of docs/restarting.md, with programs that only write down how they were called."""

import re
import subprocess
from pathlib import Path

import pytest

from exporter.cli.restart_check import CODES

ROOT = Path(__file__).parents[2]

PAGE = (ROOT / "docs/restarting.md").read_text()
SLURM, KUBERNETES, TORCHRUN = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)


def called(script: str, folder: Path, restart: str, program: int = 1, **variables: str) -> list[str]:
    """What the script called besides the program, which ends with `program`; its own exit code is the last item."""
    calls = folder / "calls"
    for name, code in {"srun": program, "torchrun": program, "python": program, "scontrol": 0, "sbatch": 0}.items():
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{calls}\nexit {code}\n')
    (folder / "gpufault").write_text(
        f'#!/bin/sh\ncase "$*" in *avoid) echo gpu-07,gpu-08 ;; esac\nexit {CODES[restart]}\n'
    )
    for program_file in folder.iterdir():
        program_file.chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_START_TIME": "1700000000"}
    environment |= variables
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


@pytest.mark.parametrize(
    "variables", [{"RESTARTS": "3"}, {"SLURM_RESTART_COUNT": "3"}, {"RESTARTS": "1", "SLURM_RESTART_COUNT": "2"}]
)
@pytest.mark.parametrize("restart", CODES)
def test_a_batch_script_restarts_no_more_than_three_times(
    restart: str, variables: dict[str, str], tmp_path: Path
) -> None:
    assert called(SLURM, tmp_path, restart, **variables) == ["1"]


def test_a_batch_script_goes_on_avoiding_nodes(tmp_path: Path) -> None:
    calls = called(SLURM, tmp_path, "elsewhere", RESTARTS="1", AVOID="gpu-01")
    assert calls == ["sbatch --exclude=gpu-01,gpu-07,gpu-08 job.sh", "1"]


@pytest.mark.parametrize("restart", CODES)
def test_a_container_that_crashed_never_says_that_it_succeeded(restart: str, tmp_path: Path) -> None:
    assert called(KUBERNETES, tmp_path, restart) == [str(CODES[restart] or 1)]
    assert called(KUBERNETES, tmp_path, restart, program=0)[-1] == "0"


@pytest.mark.parametrize("restart", CODES)
def test_torchrun_is_started_again_only_as_it_is(restart: str, tmp_path: Path) -> None:
    again = ["torchrun --max-restarts=0 train.py"] * 2 if restart == "as_is" else []
    assert called(TORCHRUN, tmp_path, restart) == [*again, str(CODES[restart] or 1)]


def test_the_page_has_the_exit_codes() -> None:
    assert dict(re.findall(r"\| `(\w+)` \| (\d) \|", PAGE)) == {word: str(code) for word, code in CODES.items()}
