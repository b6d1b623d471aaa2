"""Fleets with one story each, and what is true of it: what the correlator must find, and what it must not say.

A story changes a draft of a fleet in which nothing explains anything: facts by node and by rack, users, jobs of one node.
Two weeks; the first is for discovery, the second for confirmation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from exporter.core.decoding.jobs import party
from exporter.fleet.observations import Beats, Bools, Boots, FactRows, Floats, Incidents, Ints, Observed, Texts, Window
from exporter.fleet.statistics.correlation import correlate, remember
from exporter.fleet.statistics.findings import Correlation, Finding

DAY = 86400.0
START = 1_780_272_000.0  # 2026-06-01
RACK = 32  # nodes
CRASHES_A_DAY = 0.02  # of a node, over all signatures
BEATS_A_DAY = 4


@dataclass(slots=True)
class Draft:
    """A fleet that a story changes. `facts` has a text for each node, "" where it is not known."""

    rng: Generator
    nodes: int = 1600
    days: int = 14
    signatures: int = 6
    facts: dict[str, Texts] = field(default_factory=dict)
    changes: list[tuple[str, str, Ints, Floats]] = field(default_factory=list)  # fact, new value, nodes, times
    boots: list[tuple[Ints, Floats]] = field(default_factory=list)
    dark: list[tuple[int, float, float]] = field(default_factory=list)  # node, and the time in which it is silent
    rows: list[tuple[Ints, Floats, Ints, Texts, Ints, Ints]] = field(default_factory=list)
    images: Floats | None = None  # nodes × images: how much of the work of a node each image is
    users: int = 100
    users_known: bool = True
    counter: int = 0

    @property
    def rack(self) -> Ints:
        return np.arange(self.nodes) // RACK

    @property
    def length(self) -> float:
        return self.days * DAY

    def pick(self, values: Sequence[str], shares: Sequence[float] | None = None, *, by_rack: bool = False) -> Texts:
        """A random value for each node, or for each rack."""
        size = int(self.rack.max()) + 1 if by_rack else self.nodes
        picked = self.rng.choice(np.array(values, dtype=object), size, p=shares)
        return np.asarray(picked[self.rack] if by_rack else picked)

    def crash(
        self, node: Ints, time: Floats, signature: int = 0, *, job: Sequence[str] | None = None, user: int | None = None,
        image: int | None = None,
    ) -> None:  # fmt: skip
        """Crashes, each of a job of its own if not given, and of any user and image."""
        names = [str(self.counter + i) for i in range(len(node))] if job is None else list(job)
        self.counter += len(node)
        usual = self.rng.zipf(1.5, len(node)) % self.users
        users = usual if user is None else np.full(len(node), user)
        codes = np.full(len(node), signature, dtype=np.int64)
        images = np.full(len(node), -1 if image is None else image)
        if image is None and self.images is not None:
            images = (self.rng.random(len(node))[:, None] > self.images.cumsum(axis=1)[node]).sum(axis=1)
        texts = np.array(names, dtype=object)
        self.rows.append((node.astype(np.int64), time, codes, texts, users.astype(np.int64), images))

    def at_rate(
        self, per_day: Floats, signature: int = 0, *, since: Floats | float = 0.0, image: int | None = None
    ) -> None:
        """Crashes at a rate for each node, from a second of the window on."""
        begin = np.broadcast_to(np.asarray(since, dtype=float), (self.nodes,))
        span = np.maximum(self.length - begin, 0.0)
        node = np.repeat(np.arange(self.nodes), self.rng.poisson(per_day * span / DAY))
        self.crash(node, START + begin[node] + self.rng.uniform(0, 1, len(node)) * span[node], signature, image=image)

    def background(self, weight: Floats | float = 1.0) -> None:
        """The usual crashes of all signatures, more frequent on nodes of more weight."""
        own = np.broadcast_to(np.asarray(weight, dtype=float), (self.nodes,))
        for signature in range(self.signatures):
            self.at_rate(own * CRASHES_A_DAY / self.signatures, signature)

    def more(self, where: Bools, ratio: float, signature: int = 0, *, image: int | None = None) -> None:
        """One signature becomes so many times as frequent on some nodes."""
        self.at_rate(where * (ratio - 1) * CRASHES_A_DAY / self.signatures, signature, image=image)

    def observed(self) -> Observed:
        names = tuple(sorted(self.facts))
        values, columns = [], []
        for name in names:
            changed = [to for fact, to, *_ in self.changes if fact == name]
            texts = sorted({*self.facts[name].tolist(), *changed} - {""})
            values.append(tuple(texts))
            code = {text: i for i, text in enumerate(texts)} | {"": -1}
            columns.append(np.array([code[text] for text in self.facts[name].tolist()], dtype=np.int32))
        codes = np.stack(columns, axis=1)
        rows = [(START, node, codes[node].copy()) for node in range(self.nodes)]
        moves = sorted(
            (float(t), int(n), name, to)
            for name, to, node, time in self.changes
            for n, t in zip(node, time, strict=True)
        )
        latest = dict(enumerate(codes))
        for time, node, name, to in moves:
            index = names.index(name)
            latest[node] = latest[node].copy()
            latest[node][index] = values[index].index(to)
            rows.append((time, node, latest[node]))
        node, time, signature, job, user, image = (np.concatenate(part) for part in zip(*self.rows, strict=True))
        order = np.argsort(time, kind="stable")
        parties, number = np.unique([party(name) for name in job[order].tolist()], return_inverse=True)
        ends = START + DAY / BEATS_A_DAY * np.arange(1, self.days * BEATS_A_DAY + 1)
        beat_node, beat_end = np.repeat(np.arange(self.nodes), len(ends)), np.tile(ends, self.nodes)
        silent = np.zeros(len(beat_node), dtype=bool)
        for dark, begin, end in self.dark:
            silent |= (beat_node == dark) & (beat_end > begin) & (beat_end <= end)
        hours = np.full(len(beat_node), 24.0 / BEATS_A_DAY)
        return Observed(
            nodes=tuple(f"n{i:05}" for i in range(self.nodes)),
            signatures=tuple(f"fault_{i}" for i in range(self.signatures)),
            facts=FactRows(
                names=names, values=tuple(values), node=np.array([row[1] for row in rows], dtype=np.int64),
                since=np.array([row[0] for row in rows]), codes=np.stack([row[2] for row in rows]),
            ),
            beats=Beats(node=beat_node[~silent], end=beat_end[~silent], hours=hours[~silent], busy=0.7 * hours[~silent]),
            incidents=Incidents(
                node=node[order], time=time[order], signature=signature[order], job=number.astype(np.int64),
                user=user[order] if self.users_known else np.full(len(order), -1, dtype=np.int64),
                id=np.array([f"i{i}" for i in range(len(order))], dtype=object),
                gpu=np.full(len(order), "", dtype=object),
                workload={} if self.images is None else {"image": image[order]},
            ),
            boots=Boots(
                node=np.concatenate([np.zeros(0, dtype=np.int64), *(at for at, _ in self.boots)]),
                time=np.concatenate([np.zeros(0), *(when for _, when in self.boots)]),
            ),
            workload_names={"job": tuple(map(str, parties))},
        )  # fmt: skip


def draft(seed: int, name: str, **settings: int) -> Draft:
    """A fleet without any cause: ten facts by node, four by rack, among them versions and the GPU model."""
    new = Draft(rng=np.random.default_rng([seed, *name.encode()]), **settings)
    new.facts = {
        "rack": np.array([f"r{r:03}" for r in new.rack], dtype=object),
        "gpu_model": new.pick(("A", "B"), (0.6, 0.4)),
        "driver_version": new.pick(("550.1", "550.2", "560.1", "570.3"), (0.4, 0.3, 0.2, 0.1)),
        "kernel_version": new.pick(("6.1", "6.2", "6.8"), (0.5, 0.3, 0.2)),
        "bios_version": new.pick(("1", "2", "3", "4"), by_rack=True),
        "nic_firmware_version": new.pick(("20", "22", "24"), by_rack=True),
    }
    for i in range(6):
        size = int(new.rng.integers(2, 6))
        shares = new.rng.dirichlet(np.full(size, 1.0)).tolist()
        new.facts[f"setting_{i}"] = new.pick([f"v{v}" for v in range(size)], shares, by_rack=i % 3 == 2)
    return new


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was said of one fleet: which findings are true, which are not, and which are confirmed."""

    found: bool
    true_confirmed: bool
    false: tuple[str, ...]
    false_confirmed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A story: how it changes a fleet, and the facts that a true finding may name (none: nothing may be found)."""

    tell: Callable[[int], Draft]
    truth: tuple[str, ...] = ()

    def weeks(self, seed: int) -> tuple[Correlation, Correlation]:
        """The results of the two weeks."""
        observed = self.tell(seed).observed()
        middle = START + 7 * DAY
        first = correlate(observed, Window(start=START, end=middle))
        return first, correlate(observed, Window(start=middle, end=START + 14 * DAY), remember(first, ()))

    def verdict(self, seed: int) -> Verdict:
        """What is said of one fleet in its two weeks."""
        first, second = self.weeks(seed)
        said = [*first.findings, *second.findings]
        true = [f for f in said if self.is_true(f)]
        return Verdict(
            found=any(self.is_true(f) for f in first.findings),
            true_confirmed=any(f.status == "confirmed" for f in true),
            false=tuple(label(f) for f in first.findings if not self.is_true(f)),
            false_confirmed=tuple(label(f) for f in said if f.status == "confirmed" and not self.is_true(f)),
        )

    def is_true(self, finding: Finding) -> bool:
        """Whether a finding names one of the facts that are the cause."""
        named = [*finding.facts, *filter(None, [finding.together_with])]
        return any(str(fact) in self.truth or fact.fact in self.truth for fact in named)


def label(finding: Finding) -> str:
    """A finding in a few words."""
    return f"{finding.signature} {finding.direction} {' or '.join(map(str, finding.facts))} p={finding.p_value:.1g}"


def _quiet(seed: int) -> Draft:
    new = draft(seed, "quiet")
    new.background()
    return new


def _racks_differ(seed: int) -> Draft:
    new = draft(seed, "racks")
    for name in ("setting_0", "setting_1", "kernel_version"):
        new.facts[name] = new.pick(sorted(set(new.facts[name].tolist())), by_rack=True)
    new.background(new.rng.gamma(2.5, 0.4, int(new.rack.max()) + 1)[new.rack])
    return new


def _array(seed: int, *, named: bool, known: bool, cause: bool = False) -> Draft:
    """Each week an array of 300 tasks of one user fails, on the nodes with one driver, over some minutes."""
    new = draft(seed, f"array{named}{known}{cause}")
    new.users_known = known
    new.background()
    if cause:
        new.more(new.facts["kernel_version"] == "6.8", 8.0, 1)
    pool = np.flatnonzero(new.facts["driver_version"] == "560.1")
    for week in range(2):
        at = START + (7 * week + new.rng.uniform(1, 6)) * DAY
        node = new.rng.choice(pool, 300)
        time = at + np.sort(new.rng.uniform(0, 2400, 300))
        job = [f"{9_000_000 + week}_{i}" if named else f"{9_000_000 + 1000 * week + i}" for i in range(300)]
        new.crash(node, time, 0, job=job, user=new.users)
    return new


def _outage(seed: int) -> Draft:
    """Each week two switches of the racks with one BIOS go down, with 36 jobs of many users each."""
    new = draft(seed, "outage")
    new.background()
    for week in range(2):
        for _ in range(2):
            racks = np.unique(new.rack[new.facts["bios_version"] == "2"])
            begin = int(new.rng.choice(racks)) * RACK
            node = (begin + np.arange(36)) % new.nodes
            at = START + (7 * week + new.rng.uniform(0.5, 6.5)) * DAY
            new.crash(node, at + new.rng.uniform(0, 45, 36), 0)
    return new


def _pods(seed: int) -> Draft:
    """Jobs of many pods, each pod with an id of its own, that fail as a whole or are restarted all week."""
    new = draft(seed, "pods")
    new.background()
    for job in range(30):
        node = (int(new.rng.integers(new.nodes)) + np.arange(int(new.rng.integers(4, 65)))) % new.nodes
        time = START + new.rng.uniform(0, new.length) + new.rng.uniform(0, 300, len(node))
        new.crash(node, time, job % 3, job=[f"ml/train-{job:x}q-worker-{i}" for i in range(len(node))], user=job % 7)
    pool = np.flatnonzero(new.facts["kernel_version"] == "6.2")
    node = new.rng.choice(pool, 120)
    pods = ["web/embed-7d9f8b6c5d-" + "".join(new.rng.choice(list("bcdfghjkmn245678"), 5)) for _ in node]
    new.crash(node, START + new.rng.uniform(0, new.length, 120), 4, job=pods, user=99)
    return new


def _counts(seed: int, *, planted: bool) -> Draft:
    """48 nodes that crash each week, four times as often on 12 of them."""
    new = draft(seed, f"counts{planted}", nodes=48, signatures=2)
    new.facts["cooling"] = np.array(["new"] * 48, dtype=object)
    hot = new.rng.permutation(48)[:12]
    new.facts["cooling"][hot] = "old"
    rate = np.where(new.facts["cooling"] == "old", 4.0 if planted else 1.0, 1.0)
    new.at_rate(rate * 2.5 / 7 * new.rng.gamma(4, 1 / 4, 48), 0)
    new.at_rate(np.full(48, 0.05), 1)
    return new


def _place_names(seed: int) -> Draft:
    """Facts whose names hold the words of places, though they are settings; one makes a crash 7 times as frequent."""
    new = draft(seed, "names")
    new.facts["vm.zone_reclaim_mode"] = new.pick(("0", "1"), (0.8, 0.2))
    new.facts["node_image"] = new.pick(("a", "b"), (0.5, 0.5))
    new.background()
    new.more(new.facts["vm.zone_reclaim_mode"] == "1", 7.0)
    return new


def _many_values(seed: int) -> Draft:
    """30 values on 1,000 nodes, one of which makes a crash 15 times as frequent."""
    new = draft(seed, "many", nodes=1000)
    new.facts["tuning"] = new.pick([f"profile-{i}" for i in range(30)])
    new.background()
    new.more(new.facts["tuning"] == "profile-7", 15.0)
    return new


def _dose(seed: int, *, planted: bool) -> Draft:
    """Twelve ordered levels, each of which makes a crash 1.3 times as frequent."""
    new = draft(seed, f"dose{planted}")
    level = new.rng.integers(1, 13, new.nodes)
    new.facts["age_years"] = np.array([str(v) for v in level], dtype=object)
    new.background()
    if planted:
        rate = 1.3**level / np.mean(1.3**level)
        new.at_rate(rate * 3 * CRASHES_A_DAY / new.signatures, 0)
    return new


def _hidden(seed: int) -> Draft:
    """A driver that crashes also hides its version, on 6 of 10 nodes; a kernel goes with it on 8 of 10."""
    new = draft(seed, "hidden")
    bad = new.facts["driver_version"] == "560.1"
    goes_along = new.rng.random(new.nodes) < np.where(bad, 0.8, 0.1)
    new.facts["kernel_version"] = np.where(goes_along, "6.5", new.facts["kernel_version"])
    new.background()
    new.more(bad, 8.0)
    new.facts["driver_version"] = np.where(bad & (new.rng.random(new.nodes) < 0.6), "", new.facts["driver_version"])
    return new


def _reboot_cures(seed: int) -> Draft:
    """Kernels arrive in waves, each with a reboot; a crash is the more frequent the longer a node is up."""
    new = draft(seed, "reboots")
    new.background()
    chosen = np.flatnonzero(new.rng.random(new.nodes) < 0.6)
    moved = np.full(new.nodes, np.inf)
    moved[chosen] = START + (2 + new.rng.integers(0, 3, len(chosen)) + new.rng.uniform(0, 0.2, len(chosen))) * DAY
    new.changes.append(("kernel_version", "6.12", chosen, moved[chosen]))
    new.boots.append((chosen, moved[chosen] - 300))
    booted = START - new.rng.uniform(5, 40, new.nodes) * DAY
    for day in range(new.days):
        at = START + day * DAY + new.rng.uniform(0, 1, new.nodes) * DAY
        up = np.where(at >= moved, at - moved, at - booted) / DAY
        hit = np.flatnonzero(new.rng.random(new.nodes) < 0.03 * np.minimum(up / 20, 1.5))
        new.crash(hit, at[hit], 0)
    return new


def _image_interacts(seed: int, *, elsewhere: float, team: bool) -> Draft:
    """A crash of one image on the nodes with one driver; the image is so much of the work of the other nodes.

    team: the image is that of five users, whose work it is alone.
    """
    new = draft(seed, f"image{elsewhere}{team}")
    bad = new.facts["driver_version"] == "560.1"
    own = np.where(bad, 0.3, elsewhere)[:, None]
    new.images = np.concatenate([own, (1 - own) * np.array([[0.5, 0.3, 0.2]])], axis=1)
    new.background()
    new.more(bad, 8.0, image=0)
    if team:
        new.rows = [(*row[:4], np.where(row[5] == 0, 200 + row[4] % 5, row[4]), row[5]) for row in new.rows]
    return new


def _goes_dark(seed: int, *, planted: bool) -> Draft:
    """A driver takes nodes down without a record: a third of its nodes is silent for two to five days."""
    new = draft(seed, f"dark{planted}")
    new.background()
    bad = new.facts["driver_version"] == "560.1" if planted else np.ones(new.nodes, dtype=bool)
    for node in np.flatnonzero(bad & (new.rng.random(new.nodes) < (0.35 if planted else 0.08))).tolist():
        begin = START + new.rng.uniform(0, 12) * DAY
        new.dark.append((node, begin, begin + new.rng.uniform(2, 5) * DAY))
    return new


def _holes(seed: int, kind: str) -> Draft:
    """Holes in the heartbeats that are not their nodes' faults, most often on nodes with one BIOS or in some racks."""
    new = _goes_dark(seed, planted=False)
    new.rng = np.random.default_rng([seed, *kind.encode()])
    some = np.flatnonzero(new.facts["bios_version"] == "2")

    def dark(nodes: Ints, begin: Floats | float, days: Floats | float) -> None:
        begins, lengths = np.broadcast_to(begin, len(nodes)), np.broadcast_to(days, len(nodes))
        new.dark += [
            (n, START + b * DAY, START + (b + d) * DAY) for n, b, d in zip(nodes.tolist(), begins, lengths, strict=True)
        ]

    if kind == "outage of a collector":  # of all nodes, of those of one BIOS twice, and of racks with their power
        dark(np.arange(new.nodes), 2.1, 1.5)
        dark(some, 4.3, 1.3)
        dark(some, 10.6, 2.2)
        for rack in new.rng.choice(np.unique(new.rack[some]), 4, replace=False):
            dark(np.flatnonzero(new.rack == rack), new.rng.uniform(0.5, 12), new.rng.uniform(1, 3, RACK))
    if kind == "retirement":  # and nodes whose records are late, each by its own time
        retired = some[new.rng.random(len(some)) < 0.5]
        dark(retired, new.rng.uniform(1, 13, len(retired)), 99.0)
        late = np.flatnonzero((new.facts["driver_version"] == "560.1") & (new.rng.random(new.nodes) < 0.5))
        dark(late, 7 - new.rng.uniform(1, 3, len(late)), 99.0)
    if kind == "service":  # nodes come back with another BIOS, or go down after a crash
        serviced = some[new.rng.random(len(some)) < 0.4]
        begin = new.rng.uniform(1, 12, len(serviced))
        dark(serviced, begin, 1.4)
        new.changes.append(("bios_version", "5", serviced, START + (begin + 1.4) * DAY))
        node, time = (np.concatenate([rows[i] for rows in new.rows]) for i in (0, 1))
        repaired = new.facts["driver_version"][node] == "560.1"
        dark(node[repaired], (time[repaired] - START) / DAY + 0.2, 2.0)
    return new


def _cause(seed: int, *, by_rack: bool) -> Draft:
    """A driver or, given out by rack, a BIOS that makes a crash 8 times as frequent."""
    new = draft(seed, f"cause{by_rack}")
    new.background()
    new.more(new.facts["bios_version"] == "2" if by_rack else new.facts["driver_version"] == "560.1", 8.0)
    return new


STORIES: Mapping[str, Story] = {
    "nothing happens": Story(tell=_quiet),
    "racks differ, facts given out by rack": Story(tell=_racks_differ),
    "an array, users known": Story(tell=lambda seed: _array(seed, named=True, known=True)),
    "an array, users unknown": Story(tell=lambda seed: _array(seed, named=True, known=False)),
    "300 jobs at once, users unknown": Story(tell=lambda seed: _array(seed, named=False, known=False)),
    "a switch outage, jobs known": Story(tell=_outage),
    "pods as jobs": Story(tell=_pods),
    "48 nodes that crash weekly": Story(tell=lambda seed: _counts(seed, planted=False)),
    "no effect of 12 levels": Story(tell=lambda seed: _dose(seed, planted=False)),
    "a reboot cures": Story(tell=_reboot_cures),
    "nodes go dark at random": Story(tell=lambda seed: _goes_dark(seed, planted=False)),
    **{
        f"holes in heartbeats: {kind}": Story(tell=lambda seed, kind=kind: _holes(seed, kind))  # type: ignore[misc]
        for kind in ("outage of a collector", "retirement", "service")
    },
    "a driver": Story(
        tell=lambda seed: _cause(seed, by_rack=False), truth=("driver_version=560.1", "driver_version=560.*")
    ),
    "a BIOS given out by rack": Story(tell=lambda seed: _cause(seed, by_rack=True), truth=("bios_version",)),
    "an array beside a cause": Story(
        tell=lambda seed: _array(seed, named=True, known=False, cause=True), truth=("kernel_version",)
    ),
    "48 nodes that crash weekly, 4 times on 12": Story(
        tell=lambda seed: _counts(seed, planted=True), truth=("cooling",)
    ),
    "vm.zone_reclaim_mode": Story(tell=_place_names, truth=("vm.zone_reclaim_mode",)),
    "30 values on 1,000 nodes": Story(tell=_many_values, truth=("tuning",)),
    "12 levels, 1.3 times each": Story(tell=lambda seed: _dose(seed, planted=True), truth=("age_years",)),
    "the fact is hidden where it hurts": Story(tell=_hidden, truth=("driver_version",)),
    **{
        f"a driver with the image of {whose}": Story(
            tell=lambda seed, team=team: _image_interacts(seed, elsewhere=0.3, team=team),  # type: ignore[misc]
            truth=("driver_version=560.1", "driver_version=560.*"),
        )
        for whose, team in (("all", False), ("a team", True))
    },
    **{
        f"the image of {whose} runs with a driver and crashes": Story(
            tell=lambda seed, team=team: _image_interacts(seed, elsewhere=0.0, team=team)  # type: ignore[misc]
        )
        for whose, team in (("all", False), ("a team", True))
    },
    "nodes go dark with a driver": Story(
        tell=lambda seed: _goes_dark(seed, planted=True), truth=("driver_version=560.1", "driver_version=560.*")
    ),
}
