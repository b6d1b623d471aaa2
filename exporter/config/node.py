"""The node daemon's configuration: YAML text to a frozen Config.

All errors are reported at once, each as `file:line:col: key: what is wrong; what to do`.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from exporter.config.accounts import SERVICE_ACCOUNTS
from exporter.config.outputs import OutputsConfig
from exporter.config.types import WRITTEN_SIZE, AbsolutePath, Bytes, Glob, Seconds, Section, size
from exporter.core.decoding.job_files import JOBS_FOLDER
from exporter.core.decoding.jobs import by_pattern
from exporter.core.text.problems import LocatedError
from exporter.core.text.validation import read_as

DEFAULT_FILE = Path("/etc/gpufault/config.yaml")


def _job_pattern(value: str) -> str:
    by_pattern(value)
    return value


class JobPattern(Section):
    """A pattern that finds the job in a path."""

    pattern: Annotated[str, AfterValidator(_job_pattern)] = Field(description="with a group (?P<job>…)")


class FilesConfig(Section):
    """Job logs in files."""

    kind: Literal["files"]
    name: str = Field(
        default="files",
        pattern=r"^[a-z][a-z0-9_-]{0,39}$",
        description="two sources need two names; a log that another source reads from now on goes on there",
    )
    paths: list[Glob] = Field(
        min_length=1, description="globs; ** crosses folders. What two sources match is the first one's"
    )
    exclude: list[str] = Field(default=["*.gz"])
    format: Literal["auto", "plain", "cri", "docker"] = "auto"
    start: Literal["end", "beginning"] = Field(
        default="end",
        description="where to begin in files that are there at the very first start; later files: at byte 0",
    )
    allow_roots: list[Glob] = Field(
        default=[], description="symlinks may lead below these too; a user's link only to that user's files"
    )
    watch: Literal["auto", "poll"] = Field(
        default="auto", description="auto: inotify wakes the loop where the file system is local; poll: never"
    )
    shared: AbsolutePath | None = Field(
        default=None,
        description="for logs on a shared file system that several nodes watch: a folder on it that only gpufault "
        "writes to; each log is then counted by one node",
    )
    job: Literal["auto", "none"] | JobPattern = "auto"
    service_accounts: list[str] = Field(
        default=list(SERVICE_ACCOUNTS),
        description="users (names or numbers) that write the logs of others; logs of anyone else are their owner's jobs",
    )


class KmsgConfig(Section):
    """The kernel log."""

    kind: Literal["kmsg"]
    mode: Literal["auto", "kmsg", "syslog", "journal", "file"] = "auto"
    path: Glob | None = Field(
        default=None,
        description="a file or FIFO in /dev/kmsg form (`6,12,3456,-;text`); the text of dmesg or syslog is refused",
    )


class JournaldConfig(Section):
    """Units' output in the systemd journal; needs gpufault[journald]."""

    kind: Literal["journald"]
    units: list[str] = Field(min_length=1)


class IncidentsConfig(Section):
    window: Seconds = Field(default=60.0, description="silence that ends an episode")
    settle: Seconds = Field(default=15.0, description="wait for evidence before counting")
    late_after: Seconds = Field(default=3600.0, description="older ones are a back-fill")
    silent_after: Seconds | None = Field(
        default=1800.0,
        description="a job that uses a GPU and writes nothing for so long is `job_silent`, which explains other crashes but "
        "is not an incident; null: never",
    )


class SignaturesConfig(Section):
    packs: list[Literal["builtin"]] = Field(default=["builtin"])
    dirs: list[AbsolutePath] = Field(default=[])
    disable: list[str] = Field(default=[], description="ids or globs")
    engine: Literal["auto", "hyperscan", "python"] = "auto"


class FactsConfig(Section):
    interval: Seconds = 300.0
    rootfs: AbsolutePath = Field(
        default=Path("/"), description="where the node's own files are; in a container, where they are mounted"
    )
    home: AbsolutePath | None = Field(
        default=None, description="a home folder of jobs, where homes are not below /home"
    )
    processes: Seconds | None = Field(
        default=30.0,
        description="how often to look for processes that use a GPU, to know a job's own libraries; null: never",
    )
    ask_driver: bool = Field(
        default=True,
        description="ask the GPUs' drivers through their libraries, if installed: once, and while a fault is open",
    )
    extra: dict[str, str] = Field(default={})
    commands: dict[str, Annotated[list[str], Field(min_length=1)]] = Field(
        default={}, description="fact name to the command (a list) whose output it is"
    )


class JobsConfig(Section):
    """What tells which job runs on the node's GPUs: docs/attribution.md."""

    dir: AbsolutePath | None = Field(
        default=Path(JOBS_FOLDER),
        description="where the scheduler's hooks write the node's jobs; null: nowhere",
    )
    pod_resources: AbsolutePath | None = Field(
        default=None,
        description="kubelet's socket of assigned devices, such as /var/lib/kubelet/pod-resources/kubelet.sock",
    )


class JournalConfig(Section):
    dir: AbsolutePath | None = Field(default=None, description="default: journal below state_dir")
    max_bytes: Bytes = 256 << 20
    excerpt_lines: int = Field(default=10, ge=0, le=10)
    redact: bool = True


class LimitsConfig(Section):
    line_bytes: Annotated[int, BeforeValidator(size), Field(ge=16384, le=16 << 20), WRITTEN_SIZE] = 1 << 20
    open_files: int = Field(default=1024, ge=8)
    label_values: int = Field(default=200, ge=10)
    job_series: int = Field(default=50, ge=0, le=1000)


SourceConfig = Annotated[FilesConfig | KmsgConfig | JournaldConfig, Field(discriminator="kind")]


class Config(Section):
    """All settings of the configuration file, with their defaults."""

    node: str = Field(default="auto", min_length=1, max_length=253, description="auto: NODE_NAME, else the host's name")
    state_dir: AbsolutePath = Path("/var/lib/gpufault")
    sources: list[SourceConfig] = Field(default=[KmsgConfig(kind="kmsg")], min_length=1)
    incidents: IncidentsConfig = IncidentsConfig()
    signatures: SignaturesConfig = SignaturesConfig()
    facts: FactsConfig = FactsConfig()
    jobs: JobsConfig = JobsConfig()
    journal: JournalConfig = JournalConfig()
    limits: LimitsConfig = LimitsConfig()
    outputs: OutputsConfig = OutputsConfig()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        seen: set[str] = set()
        for index, source in enumerate(self.sources):
            name = source.name if isinstance(source, FilesConfig) else f"{source.kind} {getattr(source, 'path', '')}"
            if name in seen:
                raise LocatedError(
                    ("sources", index), f"a second source {name.strip()!r}; give each files source a name of its own"
                )
            seen.add(name)
        return self


def load(text: str, file: str) -> Config:
    """Read a configuration. Raises InvalidInput with every problem."""
    return read_as(Config, text, file)
