"""Simulated fleets as time series for promtool: nodes in racks, crashes of jobs, and what Prometheus would scrape of them.

Knows nothing of the rules. Time is counted in samples, one each five minutes; the rules are evaluated as often.

promtool refuses queries of more than 10,000 samples, and a node without crashes only counts. So the numbers of nodes and the
shares of places are given as the rules would record them (GIVEN), and only nodes that crash have series of their own.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

SAMPLE_MINUTES = 5
HOUR = 60 // SAMPLE_MINUTES
DAY = 24 * HOUR
CAUSES = tuple(f"cause_{number:02}" for number in range(12))
USERS = 40
GIVEN = ("cluster:gpufault_nodes:count", "cluster_place:gpufault_nodes:share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """One incident on one node. `job` and `user` are empty where the node does not know them."""

    at: int
    node: int
    cause: str
    verdict: str = "unclear"
    source: str = "job"
    signature: str = "s"
    severity: str = "error"
    job: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Nodes of one cluster, in racks of equal size; `seen` are the samples in which a node is scraped, if not all."""

    nodes: int
    samples: int
    crashes: tuple[Crash, ...] = ()
    rack: int = 32
    unseen: Mapping[int, range] = field(default_factory=dict)
    rollout: int | None = None  # sample from which each node's target has another pod
    new_driver: range = range(0)  # nodes that have another driver version

    def rack_of(self, node: int) -> int:
        return node // self.rack

    def racks(self) -> dict[int, range]:
        starts = range(0, self.nodes, self.rack)
        return {self.rack_of(start): range(start, min(start + self.rack, self.nodes)) for start in starts}


def fleet_of(nodes: int, samples: int) -> Fleet:
    return Fleet(nodes=nodes, samples=samples, rack=8 if nodes <= 64 else 32)


def with_crashes(fleet: Fleet, crashes: Iterable[Crash]) -> Fleet:
    return replace(fleet, crashes=(*fleet.crashes, *crashes))


def owner(random_: random.Random) -> dict[str, str]:
    """Job and user of one crash: mostly both are known, sometimes neither is."""
    job = {"job": str(random_.randrange(10**6, 10**7))}
    return random_.choices(({**job, "user": f"u{random_.randrange(USERS)}"}, job, {}), (7, 2, 1))[0]


def usual(fleet: Fleet, random_: random.Random, an_hour: float) -> Iterator[Crash]:
    """Independent crashes over a dozen causes, the first the most frequent."""
    at = random_.expovariate(an_hour / HOUR)
    while at < fleet.samples:
        (cause,) = random_.choices(CAUSES, [1 / rank for rank in range(1, len(CAUSES) + 1)])
        yield Crash(at=int(at), node=random_.randrange(fleet.nodes), cause=cause, **owner(random_))
        at += random_.expovariate(an_hour / HOUR)


def rise(fleet: Fleet, random_: random.Random, a_day: float, at: int) -> Iterator[Crash]:
    """Independent crashes of one cause whose rate doubles within three days from `at`, and stays there."""
    when = 0.0
    while (when := when + random_.expovariate(2 * a_day / DAY)) < fleet.samples:
        rate = 1 + min(1.0, max(0.0, (when - at) / (3 * DAY)))
        if random_.random() < rate / 2:
            yield Crash(at=int(when), node=random_.randrange(fleet.nodes), cause=CAUSES[0], **owner(random_))


def job(fleet: Fleet, random_: random.Random, at: int, size: int) -> Iterator[Crash]:
    """A job of neighbouring nodes that all crash together."""
    size = min(size, fleet.nodes)
    first = random_.randrange(fleet.nodes - size + 1)
    whose = {"job": str(random_.randrange(10**6, 10**7)), "user": random_.choice(("", f"u{random_.randrange(USERS)}"))}
    cause = random_.choice(CAUSES)
    for node in range(first, first + size):
        yield Crash(at=at, node=node, cause=cause, **whose)


def partly_named(fleet: Fleet, random_: random.Random, at: int, size: int = 16) -> Iterator[Crash]:
    """A job that a third of its nodes cannot name."""
    for crash in job(fleet, random_, at, size):
        yield crash if random_.random() < 2 / 3 else replace(crash, job="", user="")


def unexplained(fleet: Fleet, random_: random.Random, at: int, size: int) -> Iterator[Crash]:
    """A job of which each node tells only that another rank was lost."""
    for crash in job(fleet, random_, at, size):
        yield replace(crash, cause="unknown", signature="nccl_watchdog_timeout")


def fabric_outage(fleet: Fleet, random_: random.Random, at: int, jobs: int = 10) -> Iterator[Crash]:
    """Within a quarter of an hour, jobs of ten users lose their connections; no log tells why."""
    for number, user in enumerate(random_.sample(range(USERS), jobs)):
        when = at + number * HOUR // 4 // jobs
        for crash in unexplained(fleet, random_, when, 2 ** random_.randrange(1, 5)):
            yield replace(crash, user=f"u{user}")


def loop(fleet: Fleet, random_: random.Random, at: int, nodes: int = 4, jobs: int = 20) -> Iterator[Crash]:
    """A user who starts a job again whenever it has crashed, for some two hours."""
    user, cause = f"u{random_.randrange(USERS)}", random_.choice(CAUSES)
    verdict = random_.choice(("workload", "unclear"))
    on = random_.sample(range(fleet.nodes), nodes)
    for number in range(jobs):
        yield Crash(
            at=at + number * 2 * HOUR // jobs, node=random_.choice(on), cause=cause, verdict=verdict,
            job=str(random_.randrange(10**6, 10**7)), user=user,
        )  # fmt: skip


def job_set(fleet: Fleet, random_: random.Random, at: int, nodes: int = 8) -> Iterator[Crash]:
    """A JobSet of Kubernetes whose pods all crash: one Job for each node, and no user is known."""
    name = f"team/train{random_.randrange(10**6)}"
    for number, node in enumerate(random_.sample(range(fleet.nodes), nodes)):
        pod = "".join(random_.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
        yield Crash(at=at, node=node, cause=CAUSES[0], job=f"{name}-workers-{number}-0-{pod}")


def cancelled_array(fleet: Fleet, random_: random.Random, at: int, nodes: int = 8) -> Iterator[Crash]:
    """`scancel` of an array: the scheduler's doing."""
    array = random_.randrange(10**6, 10**7)
    for task, node in enumerate(random_.sample(range(fleet.nodes), nodes)):
        yield Crash(
            at=at, node=node, cause="unknown", signature="slurm_cancelled", severity="info", job=f"{array}_{task}",
            user="u1",
        )  # fmt: skip


def busy_rack(fleet: Fleet, random_: random.Random, at: int) -> Iterator[Crash]:
    """The rack where users test their jobs: three independent crashes in each hour, and once nine."""
    for when in range(0, fleet.samples, HOUR // 3):
        count = 3 if at <= when < at + HOUR else 1
        for node, cause in zip(random_.sample(range(fleet.rack), count), random_.sample(CAUSES, count), strict=True):
            yield Crash(at=when, node=node, cause=cause, job=str(random_.randrange(10**6, 10**7)))


def bursty_week(fleet: Fleet, random_: random.Random) -> Iterator[Crash]:
    """A fleet in which nothing is wrong: independent crashes, jobs of 1 to 512 nodes, users' loops, cancelled arrays."""
    yield from usual(fleet, random_, max(1.0, fleet.nodes / 500))
    for _ in range(3 * fleet.samples // DAY):
        kind = random_.choice((job, unexplained))
        yield from kind(fleet, random_, random_.randrange(fleet.samples), int(2 ** random_.uniform(0, 9)))
    for _ in range(max(1, fleet.samples // (2 * DAY))):
        yield from loop(fleet, random_, random_.randrange(fleet.samples - 2 * HOUR))
        yield from cancelled_array(fleet, random_, random_.randrange(fleet.samples))


def spike(random_: random.Random, at: int, nodes: Iterable[int], causes: Iterable[str] = CAUSES[:1]) -> Iterator[Crash]:
    """These nodes crash within half an hour, each with a job of its own."""
    nodes, causes = list(nodes), list(causes)
    times = sorted(random_.randrange(HOUR // 2) for _ in nodes)
    for number, (node, after) in enumerate(zip(nodes, times, strict=True)):
        yield Crash(at=at + after, node=node, cause=causes[number % len(causes)], **owner(random_))


def lost_gpu(at: int, node: int) -> Crash:
    return Crash(
        at=at, node=node, cause="gpu_lost", signature="nv_xid_79_fallen_off_bus", severity="critical", source="kernel",
        verdict="infrastructure",
    )  # fmt: skip


def series(cluster: str, fleet: Fleet) -> Iterator[tuple[str, str]]:
    """Each series of a cluster with its values, in promtool's notation."""
    by_node: dict[int, list[Crash]] = defaultdict(list)
    for crash in fleet.crashes:
        if crash.at < fleet.samples:
            by_node[crash.node].append(crash)
    yield from _given(cluster, fleet)
    for node, of in sorted(by_node.items()):
        pods = [("a", 0, fleet.samples)]
        if fleet.rollout is not None:
            pods = [("a", 0, fleet.rollout), ("b", fleet.rollout, fleet.samples)]
        for pod, start, end in pods:
            yield from _node_series(cluster, fleet, node, of, pod, start, end)


def _given(cluster: str, fleet: Fleet) -> Iterator[tuple[str, str]]:
    """How many nodes answer, and which share of them each place has. A place keeps its silent nodes, for a day."""
    edges = sorted({0, fleet.samples} | {at for of in fleet.unseen.values() for at in (of.start, of.stop)})
    spans = [(a, b, fleet.nodes - sum(a in of for of in fleet.unseen.values())) for a, b in pairwise(edges)]
    spans = [span for span in spans if span[2]]
    sizes = {("rack", f"r{rack:03}"): len(nodes) for rack, nodes in fleet.racks().items()}
    if fleet.new_driver:
        new = len(fleet.new_driver)
        sizes |= {("driver_version", "570"): new, ("driver_version", "550"): fleet.nodes - new}
    yield f'{GIVEN[0]}{{cluster="{cluster}"}}', _values(spans, range(0))
    for (place, value), size in sizes.items():
        labels = f'cluster="{cluster}",place="{place}",value="{value}"'
        yield f"{GIVEN[1]}{{{labels}}}", _values([(a, b, size / answering) for a, b, answering in spans], range(0))


def _node_series(
    cluster: str, fleet: Fleet, node: int, crashes: list[Crash], pod: str, start: int, end: int
) -> Iterator[tuple[str, str]]:
    unseen = fleet.unseen.get(node, range(0))
    target = f'cluster="{cluster}",job="gpufault",instance="n{node:05}"' + (f',pod="{pod}"' if fleet.rollout else "")
    driver = "570" if node in fleet.new_driver else "550"

    def line(name: str, labels: str, points: list[tuple[int, int, int]]) -> tuple[str, str]:
        """points: (from, to, value), ascending and apart."""
        shown = [(max(a, start), min(b, end), value) for a, b, value in points]
        return f"{name}{{{target}{labels}}}", _values([p for p in shown if p[0] < p[1]], unseen)

    always = [(0, fleet.samples, 1)]
    yield line("up", "", always)
    yield line("gpufault_node_fact", f',fact="rack",value="r{fleet.rack_of(node):03}"', always)
    if fleet.new_driver:
        yield line("gpufault_node_fact", f',fact="driver_version",value="{driver}"', always)
    pairs: dict[tuple[str, str, str, str], list[Crash]] = defaultdict(list)
    for crash in sorted(crashes, key=lambda crash: crash.at):
        pairs[crash.signature, crash.cause, crash.verdict, crash.source].append(crash)
    for (signature, cause, verdict, source), of in pairs.items():
        ends = [*(crash.at for crash in of[1:]), fleet.samples]
        labels = f',signature="{signature}",root_cause="{cause}",verdict="{verdict}",source="{source}"'
        steps = [(c.at, e, count) for count, (c, e) in enumerate(zip(of, ends, strict=True), 1)]
        yield line("gpufault_incident_verdicts_total", labels, steps)
    for signature, severity in sorted({(crash.signature, crash.severity) for crash in crashes}):
        first = min(c.at for c in crashes if c.signature == signature)
        labels = f',signature="{signature}",severity="{severity}"'
        yield line("gpufault_signature_info", labels, [(first, fleet.samples, 1)])
    named: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for crash in crashes:
        if crash.job:
            named[crash.job, crash.user, crash.signature, crash.cause].append(crash.at)
    for (job_, user, signature, cause), times in named.items():
        labels = f',exported_job="{job_}",user="{user}",signature="{signature}",root_cause="{cause}"'
        end = max(times) + HOUR - 1  # by the daemon's clock, which began before the scrape that showed the crash
        yield line("gpufault_job_incidents", labels, [(min(times), min(end, fleet.samples), 1)])


def _values(points: Sequence[tuple[int, int, float]], unseen: range) -> str:
    """promtool's notation: `1x4` is five samples, `_x4` are four without a value."""
    words: list[str] = []
    now = 0
    for start, end, value in points:
        for a, b in ((start, min(end, unseen.start)), (max(start, unseen.stop), end)) if unseen else ((start, end),):
            if a < b:
                if a > now:
                    words += [f"_x{a}"] if now == 0 else ["stale", *([f"_x{a - now - 1}"] * (a - now > 1))]
                words.append(f"{value}x{b - a - 1}")
                now = b
    return " ".join([*words, "stale"])
