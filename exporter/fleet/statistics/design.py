"""The design: which states show which value of which fact, and the strata within which values are compared.

A version counts with its prefixes (550.54.15 is also 550.54.* and 550.*). Where a node is, and which single part sits in
it, is not configuration: such facts form a family of their own.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

import numpy as np
from scipy import sparse

from exporter.fleet.observations import NOT_KNOWN, UNKNOWN, Bools, FactRows, Floats, Ints
from exporter.fleet.statistics import continuous
from exporter.fleet.statistics.exposure import States

Family = Literal["configuration", "stratum", "location"]

MIN_NODES = 3  # with a value, and without it: fewer are an anecdote
MAX_SHARE = 0.95  # of the exposure: what nearly all have cannot be separated from "all"
MANY = 20  # distinct values: of a number with more, only thresholds are tested
MOST_VALUES = 200  # of a fact, those of the most nodes; the rest is named as left out
PREFIXES = 2  # of a version: major and minor
ALIKE = 0.9  # of the exposure of two values is common: few nodes could tell them apart

# Crash rates differ between GPU models (Meta: 6.5 against 2.3 per 1,000 node-days) and between kinds of work, and so
# does nearly every other fact: comparisons are made within both. And within nodes that have, and have not, crashed
# before: crashed nodes are re-imaged first, and unusually bad nodes crash again under any image.
# What goes with one of these facts cannot vary within it. It is compared at the finest level at which it varies.
ALL_ALIKE, SAME_MODEL, SAME_VENDOR = LEVELS = range(3)
STRATUM_FACTS = ("gpu_model", "gpu_count", "partition", "slurm_partition", "queue", "workload")
# The last word of a place's name: `leaf_switch`, but not `switch_firmware`.
PLACE = re.compile(
    r"(?:.*[^a-z0-9])?(?:rack|row|col|column|room|hall|aisle|cage|chassis|cabinet|enclosure|slot|blade|tray|board|pdu|switch"
    r"|leaf|spine|location|datacenter|zone|host|node|serials?|uuid|unique|asset|mac|ip|address|(?:host|node)name)"
    r"(?:[^a-z0-9](?:id|name|number|index))?"
)
SERIAL = "gpu_serial."  # facts gpu_serial.PCI-ADDRESS, so that a card is followed to its next node
SETTINGS = frozenset({"ib_board"})  # facts of ours that end like a place
_VERSION = re.compile(r"v?\d+(?:\.\d+)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One column: a fact's value, or all versions that begin with `text` where `prefix`."""

    fact: str
    text: str
    family: Family
    prefix: bool = False

    @property
    def shown(self) -> str:
        """The value as findings print it."""
        return f"{self.text}.*" if self.prefix else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """`has` is states × values, 1 where the state shows the value. `strata[level][state]` numbers what is compared with
    what, the finest level first; `level` is that of each value.
    """

    states: States
    values: tuple[Value, ...]
    has: sparse.csr_matrix
    strata: tuple[Ints, ...]
    level: Ints
    nodes: int
    left_out: Mapping[str, int] = field(default_factory=dict)  # values of facts with too many, by fact
    clusters: tuple[Ints, ...] = ()  # for each fact of places of several nodes, the place of each state

    def column(self, value: int) -> Bools:
        """The states that show a value."""
        column: Bools = np.asarray(self.has[:, [value]].toarray()).ravel() > 0
        return column

    def find(self, fact: str, shown: str) -> int | None:
        """The number of a fact's value as findings print it; None if it is not in the design."""
        return next((i for i, v in enumerate(self.values) if (v.fact, v.shown) == (fact, shown)), None)

    def nodes_with(self, column: Bools) -> Ints:
        """The nodes that showed it at any time."""
        return np.unique(self.states.node[column])


def family_of(fact: str, location_globs: Sequence[str] = ()) -> Family:
    """What a fact describes: the node's configuration, the kind of node or work, or its place and parts.

    location_globs: globs of facts that the site calls places.
    """
    own = fact.startswith(SERIAL) or (fact not in SETTINGS and PLACE.fullmatch(fact.lower()))
    if own or any(fnmatchcase(fact, glob) for glob in location_globs):
        return "location"
    return "stratum" if fact in STRATUM_FACTS else "configuration"


def is_set_by_people(facts: FactRows, index: int) -> bool:
    """Whether people set a fact: configuration, not a place, and not a temperature, which changes all the time."""
    is_configuration = family_of(facts.names[index], facts.location_globs) == "configuration"
    return is_configuration and not continuous.is_continuous(facts.names[index], facts.values[index])


def build(states: States, facts: FactRows) -> Design:
    """The design of the states that were watched. Equal columns are kept once, in the order of the facts' names."""
    codes = facts.codes[states.row]
    nodes = len(np.unique(states.node))
    total = float(states.hours.sum())
    weight = states.hours.sum(axis=1)
    values: list[Value] = []
    columns: list[Ints] = []
    left_out = {}
    for index in sorted(range(len(facts.names)), key=lambda i: facts.names[i]):
        family = family_of(facts.names[index], facts.location_globs)
        of_fact = _values_of(facts.names[index], facts.values[index], family, codes[:, index], weight)
        used = len(np.unique(codes[codes[:, index] >= 0, index])) if family == "configuration" else 0
        if used > MANY and not any(continuous.is_threshold(value.text) for value, _ in of_fact):
            left_out[facts.names[index]] = used - sum(not v.prefix and v.text != UNKNOWN for v, _ in of_fact)
        for value, members in of_fact:
            if len(members) == 0 or weight[members].sum() > MAX_SHARE * total:
                continue
            if np.count_nonzero(np.diff(states.node[members])) + 1 < MIN_NODES:  # states are sorted by node
                continue
            values.append(value)
            columns.append(members)
    has = _matrix(columns, len(states.node))
    strata = tuple(
        refine(_strata(facts, codes, names), states.crashed) for names in (STRATUM_FACTS, STRATUM_FACTS[:1], ())
    )
    level = _levels(has, weight, strata)
    level[[value.family == "location" for value in values]] = ALL_ALIKE
    return Design(
        states=states, values=tuple(values), has=has, strata=strata, level=level, nodes=nodes,
        left_out={name: count for name, count in left_out.items() if count}, clusters=_clusters(states, facts, codes),
    )  # fmt: skip


def _clusters(
    states: States, facts: FactRows, codes: np.ndarray[tuple[int, int], np.dtype[np.int32]]
) -> tuple[Ints, ...]:
    """The places of each state, by facts of which most values are those of several nodes."""
    out = []
    for index, name in enumerate(facts.names):
        if family_of(name, facts.location_globs) == "location":
            of_node = np.unique(np.stack([states.node, codes[:, index]]), axis=1)[1]
            nodes = np.bincount(of_node[of_node >= 0])
            if np.median(nodes[nodes > 0], keepdims=True).max(initial=0) >= MIN_NODES:
                out.append(codes[:, index].astype(np.int64))
    return tuple(out)


def _levels(has: sparse.csr_matrix, weight: Floats, strata: Sequence[Ints]) -> Ints:
    """For each value the finest level in which it varies: enough of its exposure, or of that without it, has as much of
    the other beside it in the same stratum.
    """
    own = np.asarray(has.T @ weight).ravel()
    least = np.minimum(own, weight.sum() - own)
    level = np.full(has.shape[1], SAME_VENDOR, dtype=np.int64)
    for finer in (SAME_MODEL, ALL_ALIKE):
        label = strata[finer]
        size = int(label.max(initial=-1)) + 1
        by_stratum = sparse.csr_matrix((weight, (label, np.arange(len(label)))), shape=(size, len(label)))
        with_ = np.asarray((by_stratum @ has).toarray())
        without = np.bincount(label, weight, size)[:, None] - with_
        level[np.minimum(with_, without).sum(axis=0) > (1 - ALIKE) * least] = finer
    return level


def distinct(design: Design) -> Ints:
    """For each value, the first value that the very same states show: equal columns are one test."""
    marks = np.random.default_rng(0).integers(1, 1 << 62, design.has.shape[0], dtype=np.int64)
    csc = design.has.tocsc()
    sums = np.array([marks[csc.indices[a:b]].sum() for a, b in zip(csc.indptr[:-1], csc.indptr[1:], strict=True)])
    _, first, inverse = np.unique(sums, return_index=True, return_inverse=True)
    return first[inverse] if len(sums) else np.zeros(0, dtype=np.int64)


def overlap(design: Design, column: Bools) -> Floats:
    """The exposure that each value has in common with some states, as a share of what either has (Jaccard)."""
    weight = design.states.hours.sum(axis=1)
    common = np.asarray(design.has.T @ (weight * column)).ravel()
    own = np.asarray(design.has.T @ weight).ravel()
    either = own + weight[column].sum() - common
    return np.asarray(np.divide(common, either, out=np.zeros_like(common), where=either > 0))


def vendor_of(model: str) -> str:
    """The vendor that a GPU's model name tells, "any" where it tells none."""
    text = model.lower()
    return next((vendor for vendor, words in _VENDOR_WORDS.items() if any(word in text for word in words)), "any")


_VENDOR_WORDS: Mapping[str, Sequence[str]] = {
    "amd": ("amd", "instinct", "radeon"),
    "nvidia": ("nvidia", "tesla", "geforce", "quadro"),
    "intel": ("intel", "data center gpu max", "ponte vecchio"),
}


def of_vendor(facts: FactRows, found: States, vendor: str) -> Bools:
    """The states of nodes that a vendor's signature can come from: that vendor's, and those of no known vendor."""
    if vendor == "any" or "gpu_model" not in facts.names:
        return np.ones(len(found.node), dtype=bool)
    index = facts.names.index("gpu_model")
    fits = np.array([vendor_of(model) in (vendor, "any") for model in facts.values[index]] + [True])
    return np.asarray(fits[facts.codes[found.row, index]], dtype=bool)


def _values_of(
    fact: str, texts: Sequence[str], family: Family, codes: np.ndarray[tuple[int], np.dtype[np.int32]], weight: Floats
) -> list[tuple[Value, Ints]]:
    order = np.argsort(codes, kind="stable").astype(np.int64)
    bounds = np.searchsorted(codes[order], np.arange(-1, len(texts) + 1))
    sizes = np.diff(bounds)
    of_code = continuous.numbers(fact, texts, sizes[1:] > 0) if family == "configuration" else None
    parts = [] if of_code is None else _parts_of(fact, of_code, codes, weight)
    if of_code is not None and np.count_nonzero(sizes[1:]) > MANY:
        return parts
    # There may be as many values as nodes: those of a node or two are left out before they cost.
    shown = np.flatnonzero(sizes[1:] >= (1 if np.count_nonzero(sizes[1:]) <= MANY else MIN_NODES)).tolist()
    if family != "location":
        shown = sorted(sorted(shown, key=lambda code: -sizes[code + 1])[:MOST_VALUES])
    members = {code: order[bounds[code + 1] : bounds[code + 2]] for code in (NOT_KNOWN, *shown)}
    exact = [(Value(fact=fact, text=texts[code], family=family), members[code]) for code in shown]
    if shown and len(members[NOT_KNOWN]) and not parts:
        exact.append((Value(fact=fact, text=UNKNOWN, family=family), members[NOT_KNOWN]))
    return sorted(exact, key=lambda pair: pair[0].text) + _prefixes(fact, texts, family, members, shown) + parts


def _parts_of(
    fact: str, of_code: Floats, codes: np.ndarray[tuple[int], np.dtype[np.int32]], weight: Floats
) -> list[tuple[Value, Ints]]:
    """The values above and below each threshold of a continuous fact, and that it is not known."""
    number = continuous.decoded(of_code, codes)
    values = []
    for threshold in continuous.thresholds(number, weight):
        for at_least in (True, False):
            text = continuous.shown(threshold, at_least=at_least)
            members = np.flatnonzero(continuous.meets(text, of_code, codes))
            values.append((Value(fact=fact, text=text, family="configuration"), members))
    missing = np.flatnonzero(codes < 0)
    return [*values, (Value(fact=fact, text=UNKNOWN, family="configuration"), missing)] if len(missing) else values


def _prefixes(
    fact: str, texts: Sequence[str], family: Family, members: Mapping[int, Ints], shown: Sequence[int]
) -> list[tuple[Value, Ints]]:
    under: dict[str, list[int]] = {}
    for code in shown:
        version = _VERSION.match(texts[code])
        parts = version[0].split(".") if version else []
        for size in range(1, min(len(parts), PREFIXES + 1)):
            under.setdefault(".".join(parts[:size]), []).append(code)
    values = []
    taken = {tuple(shown)}  # what every version has in common tells nothing, nor does a prefix of one version
    for prefix, below in sorted(under.items()):
        if len(below) > 1 and tuple(below) not in taken:
            taken.add(tuple(below))
            together = np.sort(np.concatenate([members[code] for code in below]))
            values.append((Value(fact=fact, text=prefix, family=family, prefix=True), together))
    return values


def _matrix(columns: list[Ints], rows: int) -> sparse.csr_matrix:
    """The columns as a matrix. Empties the list: of a large fleet it takes as much memory as the matrix."""
    shape = rows, len(columns)
    indptr = np.cumsum([0, *map(len, columns)])
    indices = np.concatenate([np.zeros(0, dtype=np.int64), *columns], dtype=np.int32, casting="same_kind")
    columns.clear()
    return sparse.csc_matrix((np.ones(len(indices)), indices, indptr), shape=shape).tocsr()


def _strata(facts: FactRows, codes: np.ndarray[tuple[int, int], np.dtype[np.int32]], names: Sequence[str]) -> Ints:
    """Number the combinations of some facts' values."""
    label = np.zeros(len(codes), dtype=np.int64)
    for fact in names:
        if fact in facts.names:
            label = refine(label, codes[:, facts.names.index(fact)])
    return label


def refine(label: Ints, by: np.ndarray[tuple[int], np.dtype[np.generic]]) -> Ints:
    """Cut strata by another labelling."""
    other = by.astype(np.int64)
    if not len(other):
        return label.astype(np.int64)
    low = int(other.min())
    both = label.astype(np.int64) * (int(other.max()) - low + 1) + (other - low)
    return np.asarray(np.unique(both, return_inverse=True)[1].reshape(-1), dtype=np.int64)
