"""Which address speaks for which node, where only the daemons tell their names (`pull.dns_names: daemon`). Pure.

A daemon may lie about its name. So an address that has spoken for a node keeps it while it is listed, and cannot take the
name of another. A daemon whose pod was replaced has a new address, which takes the name that its old address left. What
cannot be distinguished is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

FORGET_SECONDS = 86400.0  # after which an address that is not listed any more may be another node's
REMEDY = "restart the daemon that is right, which gives it a new address, or use pull.dns_names: kubernetes"


class Spoken(NamedTuple):
    """The address that speaks for a node, and when it was last listed, in Unix seconds."""

    address: str
    listed: float


@dataclass(slots=True)
class AddressBook:
    """Who speaks for whom, by node. Replaced as a whole: one thread settles, another stores."""

    spoken: Mapping[str, Spoken] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The address of each node; why other claims are refused, by the node that they claim; and the book to keep."""

    speakers: Mapping[str, str]
    refused: Mapping[str, str]
    spoken: Mapping[str, Spoken]


def settle(spoken: Mapping[str, Spoken], claims: Mapping[str, str | None], now: float) -> Settled:
    """claims: what the daemon at each listed address says that its node is; None: it does not answer."""
    # Time in which the list was not read does not count.
    last_listed = max((one.listed for one in spoken.values()), default=now)
    kept = {
        node: Spoken(one.address, now if one.address in claims else one.listed)
        for node, one in spoken.items()
        if last_listed - one.listed < FORGET_SECONDS
    }
    owner = {one.address: node for node, one in kept.items()}
    speakers = {
        owner[address]: address
        for address, name in claims.items()
        if address in owner and name in (None, owner[address])
    }
    claimed: dict[str, list[str]] = {}
    for address, name in sorted(claims.items()):
        if name is not None and speakers.get(name) != address:
            claimed.setdefault(name, []).append(address)
    refused: dict[str, str] = {}
    accepted: dict[str, str] = {}
    for name, addresses in claimed.items():
        # An address that has spoken for another node may speak for this one only if that node has moved elsewhere.
        free = [
            address
            for address in addresses
            if address not in owner or claimed.get(owner[address], [address]) != [address]
        ]
        if name not in speakers and len(free) == 1:
            accepted[name] = free[0]
        if len(addresses) > 1 or name not in accepted:
            others = ", ".join(address for address in addresses if accepted.get(name) != address)
            holder = speakers.get(name) or accepted.get(name)
            proven = f", which is at {holder}" if holder else ""
            before = sorted(
                {owner[address] for address in addresses if address in owner and accepted.get(name) != address}
            )
            past = f"; it has spoken for {', '.join(before)}" if before else ""
            refused[name] = f"{others} claims to be node {name}{proven}{past}; {REMEDY}"
    speakers |= accepted
    taken = set(accepted.values())
    kept = {node: one for node, one in kept.items() if one.address not in taken}
    return Settled(
        speakers=speakers, refused=refused, spoken=kept | {node: Spoken(at, now) for node, at in speakers.items()}
    )
