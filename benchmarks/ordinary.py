"""Ordinary lines of programs beside and below GPU jobs, each in its own format: nothing is wrong with any of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Line = Callable[[int, random.Random], str]

# What services say all day. `{n}` is a number, `{id}` a name.
_MESSAGES = (
    "Starting workers count={n}", "Reconciled object in {n}ms", "Successfully assigned default/{id} to node-{n}",
    "Found {n} pods for node, status: Running", "Created container {id}", "No changes detected, {n} objects up to date",
    "Finished garbage collection: {n} images, {n} bytes", "status: ready, available replicas: {n}",
    "Waiting for caches to sync", "Caches are synced for {id}", "retrying in {n}ms, attempt {n}", "level set to info",
    "http request completed method=GET path=/healthz status=200 duration={n}us", "allocated {n} devices for {id}",
    "lease renewed, timeout {n}s", "Connection to {id} established after {n} attempts", "watch closed, opening again",
    "barrier passed by {n} members in {n}ms", "Invalidating cache entry {id}", "could be scheduled on {n} of {n} nodes",
    "Exception list loaded: {n} rules", "Error budget: {n} of {n} used", "0 errors, {n} warnings, {n} checks passed",
    "failed over to replica {n}, {n}ms", "Flushing {n} records", "Enqueued item {id}, queue length {n}", "GPU {n}: {n}% busy",
    "memory usage {n} MiB, limit {n} MiB", "plugin nvidia.com/gpu registered with kubelet", "checkpoint {id} is complete",
)  # fmt: skip
_TRAINERS = (
    "{stamp} INFO [train.py:{n}] epoch {n} step {n} loss 2.{n} grad_norm 0.{n} lr 3e-04 tokens/s {n}",
    "{{'loss': 2.{n}, 'grad_norm': 0.{n}, 'learning_rate': 1.2e-05, 'epoch': 0.{n}}}",
    " iteration {n}/  500000 | consumed samples: {n} | elapsed time per iteration (ms): {n}.1 | learning rate: 1.5E-04 |",
    " global batch size: 512 | lm loss: 2.{n}E+00 | loss scale: 1.0 | grad norm: 0.{n} | number of skipped iterations: 0 |",
    "{id}:{n}:{n} [{g}] NCCL INFO Channel {n}/0 : {g}[{g}] -> {g}[{g}] via P2P/CUMEM/read",
    "{id}:{n}:{n} [{g}] NCCL INFO comm 0x5584{n} rank {n} nranks {n} cudaDev {g} nvmlDev {g} busId 1b000 - Init COMPLETE",
    "Epoch {n} finished in {n} s, validation accuracy 0.{n}, saved to /scratch/runs/{id}.pt",
    "[{stamp},{n}] [INFO] [logging.py:{n}:log_dist] [Rank 0] step={n}, skipped=0, lr=[0.0001], mom=[(0.9, 0.95)]",
    "INFO 11-21 01:02:03 [loggers.py:{n}] Engine 000: Avg prompt throughput: {n}.1 tokens/s, Waiting: 0 reqs",
    "wandb: Run data is saved locally in /scratch/{id}/wandb/run-{n}",
    "Memory allocated: {n} MiB, reserved: {n} MiB, device cuda:{g}, no OOM so far",
    "[rank{g}]:[W1121 01:02:03.{n} socket.cpp:{n}] [c10d] waiting for the client socket at [node-{n}]:29500",
)
_STARTS = (  # what each rank writes once
    "Loading checkpoint shards from /scratch/models/{id} ({n} of {n})",
    "/opt/env/lib/python3.11/site-packages/torch/nn/modules/module.py:{n}: UserWarning: the default will change in 2.{g}",
)
_BOOT = (
    "pci 0000:{b}:00.0: BAR 0 [mem 0x{n}0000-0x{n}ffff 64bit pref]: assigned", "usb 1-{g}: new high-speed USB device",
    "nvme nvme{g}: {n}/0/0 default/read/poll queues", "mlx5_core 0000:{b}:00.0: firmware version: 28.{n}.1002",
    "systemd[1]: Started Session {n} of User root.", "systemd[1]: Reached target network.target - Network.",
    "audit: type=1400 audit({n}.1:{n}): apparmor=ALLOWED operation=open profile={id} pid={n}", "eth{g}: renamed from veth{n}",
    "cni0: port {n}(veth{n}) entered forwarding state", "IPv6: ADDRCONF(NETDEV_CHANGE): veth{n}: link becomes ready",
    "EXT4-fs (nvme{g}n1p2): mounted filesystem with ordered data mode. Quota mode: none.", "NFS: Registering the id_resolver",
    "perf: interrupt took too long ({n} > {n})",
    "[drm] ring gfx{g} uses VM inv eng {g} on hub 0", "workqueue: events_unbound uses {n} workers",
    "smpboot: CPU {n} is now offline", "overlayfs: upper fs does not support tmpfile", "device veth{n} left promiscuous mode",
    "docker0: port {g}(veth{n}) entered disabled state", "systemd-journald[{n}]: Time spent on flushing is {n}us",
)  # fmt: skip


def _filled(template: str, number: int, dice: random.Random) -> str:
    fields = {"id": f"job-{dice.getrandbits(32):08x}", "g": dice.randrange(8), "b": f"{dice.randrange(256):02x}"}
    return template.format(n=dice.randrange(10 ** dice.randint(1, 6)), stamp=_stamp(number), **fields)


def _stamp(number: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return (datetime(2026, 11, 21, 1, 2, tzinfo=UTC) + timedelta(seconds=number // 1000)).strftime(form)


def _message(number: int, dice: random.Random) -> str:
    return _filled(dice.choice(_MESSAGES), number, dice)


def _go(number: int, dice: random.Random) -> str:
    level = dice.choice(("info", "info", "debug", "warning"))
    return f'time="{_stamp(number, "%Y-%m-%dT%H:%M:%SZ")}" level={level} msg="{_message(number, dice)}" component=agent'


def _klog(number: int, dice: random.Random) -> str:
    source = dice.choice(("controller.go", "reflector.go", "event.go", "cpu_manager.go"))
    head = f"{dice.choice('IIIW')}{_stamp(number, '%m%d %H:%M:%S')}.{dice.randrange(10**6):06}"
    return f"{head} {dice.randrange(9999):7} {source}:{dice.randrange(999)}] {_message(number, dice)}"


def _json(number: int, dice: random.Random) -> str:
    said = {"level": "info", "ts": f"{_stamp(number)}Z", "caller": "server/main.go:42", "msg": _message(number, dice)}
    return json.dumps(
        {**said, "error": None, "status": dice.choice((200, 204, 404)), "trace_id": f"{dice.getrandbits(64):x}"}
    )


def _trainer(number: int, dice: random.Random) -> str:
    return _filled(dice.choice(_STARTS if dice.random() < 0.01 else _TRAINERS), number, dice)


def _progress(number: int, dice: random.Random) -> str:
    """One line of the file, which a progress bar has drawn forty times."""
    draws = (f"Epoch {number}: {p * 5 // 2}%|{'#' * p:40}| {p * 250}/10000 [00:{p}<01:02, 161it/s, loss={dice.random():.3f}]"
             for p in range(40))  # fmt: skip
    return "\r".join(draws)


def _long(number: int, dice: random.Random) -> str:
    return (
        f"{_stamp(number)} DEBUG weights tensor([{', '.join(f'{dice.random():.4f}' for _ in range(50))}"
        + ", 0.0312" * 50_000
    )


def _boot(number: int, dice: random.Random) -> str:
    return f"[{number / 1000:12.6f}] {_filled(dice.choice(_BOOT), number, dice)}"


OF_JOBS: dict[str, Line] = {
    "Go service": _go, "klog": _klog, "JSON": _json, "trainers": _trainer, "progress bars": _progress,
    "lines of 400 kB": _long,
}  # fmt: skip
OF_KERNELS: dict[str, Line] = {"kernel, in all its words": _boot}
