"""deploy/seccomp/gpufault.json: the default profile of container runtimes without unneeded calls."""

from __future__ import annotations

import importlib.util
import json
from types import ModuleType

from tests.deploy.kubernetes import ROOT
from tests.support.programs import needs

SHIPPED = json.loads((ROOT / "deploy/seccomp/gpufault.json").read_text(encoding="utf-8"))


def derive() -> ModuleType:
    spec = importlib.util.spec_from_file_location("derive", ROOT / "deploy/seccomp/derive.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def calls(action: str) -> set[str]:
    return {name for rule in SHIPPED["syscalls"] if rule["action"] == action for name in rule["names"]}


@needs(absent=[] if derive().DEFAULT.exists() else ["golang-github-containers-common"])
def test_the_profile_is_the_default_without_unneeded_calls() -> None:
    module = derive()
    default = json.loads(module.DEFAULT.read_text(encoding="utf-8"))
    assert module.SHIPPED.read_text(encoding="utf-8") == module.text(module.derived(default))
    assert calls("SCMP_ACT_ALLOW") <= {name for rule in default["syscalls"] for name in rule["names"]} - module.NEVER


def test_the_profile_denies_unlisted_calls_and_open_by_handle() -> None:
    assert SHIPPED["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {"open_by_handle_at", "name_to_handle_at", "ptrace"} <= calls("SCMP_ACT_ERRNO") - calls("SCMP_ACT_ALLOW")
    assert {"openat", "syslog", "inotify_add_watch", "prctl"} <= calls("SCMP_ACT_ALLOW")


def test_the_profile_has_no_conditions() -> None:
    assert {key for rule in SHIPPED["syscalls"] for key in rule} == {"names", "action", "errnoRet", "args"}
    assert SHIPPED["architectures"] == ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"]
