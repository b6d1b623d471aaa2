"""Where in a block of bytes a gate occurs. Two engines with one answer; which one runs changes speed, never counts.

Hyperscan scans whole blocks with all literals at once (measured: 3.3 GB/s with 689 literals, one core). A database of
1,300 takes 20 ms to build and 0.1 ms to take up where the wheel has it.
The python engine looks for one literal after the other and serves where there is no wheel. Neither knows lines or
signatures.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from exporter.core.patterns.required_literals import Gate


class Hits(NamedTuple):
    """Where which gates occur: the offsets just behind their last bytes, ascending, and their indices beside them.

    Two lists, for a flood has tens of thousands in a block. Of hits that end at one byte any may come first.
    """

    ends: list[int]
    gates: list[int]


Databases = Mapping[bytes, bytes]  # of Hyperscan, as it serializes them, by what `key_of` gives for their gates
NO_DATABASES: Databases = {}


class Engine(Protocol):
    """Finds gates. `scan` returns every occurrence, overlapping ones too."""

    name: str
    version: str

    def scan(self, block: bytes) -> Hits: ...


class PythonEngine:
    """One `bytes.find` loop a gate; case-blind gates look into one lowered copy of the block."""

    name = "python"
    version = "1"

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = tuple(enumerate(gates))
        self._blind = any(gate.ignore_case for gate in gates)

    def scan(self, block: bytes) -> Hits:
        lowered = block.lower() if self._blind else block
        hits: list[tuple[int, int]] = []
        for index, gate in self._gates:
            text = lowered if gate.ignore_case else block
            literal = gate.literal
            at = text.find(literal)
            while at >= 0:
                hits.append((at + len(literal), index))
                at = text.find(literal, at + 1)
        return _ordered(hits)


class HyperscanEngine:
    """One Hyperscan database of literals: no UTF8 flag, no start-of-match (both of them trap).

    In VECTORED mode, of one buffer each time: in BLOCK mode every database gets a DFA for blocks of up to 70 bytes, which
    takes ten times as long to build as all the rest and is asked for nothing here.
    Not for two threads at once: a database carries its one scratch space.
    """

    name = "hyperscan"

    def __init__(self, gates: Sequence[Gate], databases: Databases = NO_DATABASES) -> None:
        import hyperscan

        self._hyperscan: Any = hyperscan  # its types know no list of buffers
        # Its types lack it; importlib.metadata takes as long to import as a database to build.
        self.version: str = hyperscan.__version__  # type: ignore[attr-defined]
        self._database = self._stored(databases.get(key_of(gates))) or self._built(gates)
        self._empty = not gates

    def serialized(self) -> bytes:
        """The database, for `databases` of an engine with the same gates, Hyperscan and kind of processor."""
        database: bytes = self._hyperscan.dumpb(self._database)
        return database

    def _stored(self, serialized: bytes | None) -> Any:
        """The database that was serialized; None if it is missing, or another Hyperscan or processor made it."""
        if serialized is None:
            return None
        try:
            database = self._hyperscan.loadb(serialized, self._hyperscan.HS_MODE_VECTORED)
            database.scratch = self._hyperscan.Scratch(database)
        except self._hyperscan.error:  # it compares versions, features and a checksum
            return None
        return database

    def _built(self, gates: Sequence[Gate]) -> Any:
        database = self._hyperscan.Database(mode=self._hyperscan.HS_MODE_VECTORED)
        if gates:
            database.compile(
                expressions=[gate.literal for gate in gates],
                ids=list(range(len(gates))),
                elements=len(gates),
                flags=[self._hyperscan.HS_FLAG_CASELESS if gate.ignore_case else 0 for gate in gates],
                literal=True,
            )
        return database

    def scan(self, block: bytes) -> Hits:
        ends: list[int] = []
        gates: list[int] = []
        if self._empty or not block:
            return Hits(ends, gates)
        add_end, add_gate = ends.append, gates.append

        def on_hit(index: int, _from: int, end: int, _flags: int, _context: Any) -> None:
            add_end(end)
            add_gate(index)

        self._database.scan([block], match_event_handler=on_hit)
        # They come in the order of their ends, which Hyperscan does not promise.
        return Hits(ends, gates) if ends == sorted(ends) else _ordered(zip(ends, gates, strict=True))


def _ordered(hits: Iterable[tuple[int, int]]) -> Hits:
    ends_and_gates = sorted(hits)
    return Hits([end for end, _ in ends_and_gates], [gate for _, gate in ends_and_gates])


def key_of(gates: Sequence[Gate]) -> bytes:
    """The gates in their order, in one text: no literal has a newline."""
    return b"\n".join(b"%d%b" % gate[::-1] for gate in gates)


def build(
    gates: Sequence[Gate],
    choice: Literal["auto", "hyperscan", "python"] = "auto",
    databases: Databases = NO_DATABASES,
) -> Engine:
    """The engine that the configuration asks for; `auto` takes Hyperscan where its wheel can be imported."""
    if choice == "python":
        return PythonEngine(gates)
    try:
        return HyperscanEngine(gates, databases)
    except ImportError:
        if choice == "hyperscan":
            raise
        return PythonEngine(gates)
