"""Names and passwords: who is let in, what a refusal costs, and whom a flood holds up."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator

import bcrypt
import pytest

from exporter.web.users import MAX_PENDING, Authenticator, Decision, Users, network_of, parse_credentials


def hash_of(password: bytes, cost: int = 4) -> str:
    return bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode()


def header(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The cost of each bcrypt that is computed."""
    seen: list[int] = []
    checkpw = bcrypt.checkpw

    def counted(password: bytes, hashed: bytes) -> bool:
        seen.append(int(hashed.split(b"$")[2]))
        return checkpw(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", counted)
    return seen


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The passwords that are checked, in order."""
    seen: list[bytes] = []
    checkpw = bcrypt.checkpw

    def noted(password: bytes, hashed: bytes) -> bool:
        seen.append(password)
        return checkpw(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", noted)
    return seen


def test_only_the_right_password_of_a_user_is_right() -> None:
    users = Users({"ada": hash_of(b"secret"), "bob": hash_of(b"other")})
    assert users.check("ada", b"secret")
    assert not any((users.check("ada", b"other"), users.check("eve", b"secret"), users.check("", b"")))


def test_a_password_is_what_bcrypt_reads_of_it() -> None:
    users = Users({"ada": hash_of(b"x" * 72), "nul": hash_of(b"a\0b")})
    assert users.check("ada", b"x" * 100)
    assert users.is_verified("ada", b"x" * 200)
    assert not users.check("ada", b"x" * 71)
    assert users.check("nul", b"a\0b")
    assert not users.check("nul", b"a")


def test_a_refusal_costs_the_same_whoever_is_named(costs: list[int]) -> None:
    users = Users({"ada": hash_of(b"a", 4), "bob": hash_of(b"b", 7)})
    work = []
    for name in ("ada", "bob", "nobody"):
        costs.clear()
        assert not users.check(name, b"wrong")
        work.append(sum(2**cost for cost in costs))
    assert work == [2**7] * 3


def test_what_was_right_costs_no_second_bcrypt_and_what_was_wrong_does(costs: list[int]) -> None:
    users = Users({"ada": hash_of(b"secret")})
    assert users.check("ada", b"secret")
    costs.clear()
    assert users.is_verified("ada", b"secret")
    assert costs == []
    for _ in range(2):
        assert not users.is_verified("ada", b"wrong")
        assert not users.check("ada", b"wrong")
    assert costs == [4, 4]


def test_no_password_is_kept_and_no_more_is_kept_than_there_are_users() -> None:
    users = Users({"ada": hash_of(b"secret")})
    for password in (b"secret", b"wrong", b"secret"):
        users.check("ada", password)
    kept = list(users._verified.values())
    assert len(kept) == 1
    assert b"secret" not in repr(vars(users)).encode()
    assert kept != list(Users({"ada": hash_of(b"secret")})._verified.values())


def test_a_new_configuration_forgets_who_has_a_new_password_and_who_has_gone() -> None:
    ada, bob = hash_of(b"a"), hash_of(b"b")
    before = Users({"ada": ada, "bob": bob})
    assert before.check("ada", b"a")
    assert before.check("bob", b"b")
    after = Users({"ada": hash_of(b"new"), "carol": bob}, before)
    assert not after.is_verified("ada", b"a")
    assert not after.is_verified("bob", b"b")
    assert after.is_verified("carol", b"b")  # the same hash is the same password


def test_a_flood_of_wrong_passwords_delays_a_right_one_by_one_check(order: list[bytes]) -> None:
    users = Users({"ada": hash_of(b"secret", 6)})

    async def flood() -> tuple[list[Decision], Decision]:
        authenticator = Authenticator()
        wrong = [
            asyncio.create_task(authenticator.decide(users, "192.0.2.1", header("ada", f"wrong {number}")))
            for number in range(200)
        ]
        await asyncio.sleep(0)
        right = await authenticator.decide(users, "192.0.2.2", header("ada", "secret"))
        return list(await asyncio.gather(*wrong)), right

    wrong, right = asyncio.run(flood())
    assert (right, order.index(b"secret")) == (Decision.ALLOWED, 1)
    assert (wrong.count(Decision.DENIED), wrong.count(Decision.BUSY)) == (48, 152)


@pytest.mark.parametrize("different", [1, 47])
def test_a_right_password_gets_through_a_flood_from_its_own_address(order: list[bytes], different: int) -> None:
    """A password the daemon has never seen. 47 wrong ones are as many as can wait before it."""
    users = Users({"ada": hash_of(b"secret")})

    async def flood() -> Decision:
        authenticator = Authenticator()
        wrong = [
            asyncio.create_task(authenticator.decide(users, "127.0.0.1", header("ada", f"wrong {number % different}")))
            for number in range(400)
        ]
        await asyncio.sleep(0)
        right = await authenticator.decide(users, "127.0.0.1", header("ada", "secret"))
        await asyncio.gather(*wrong)
        return right

    assert asyncio.run(flood()) is Decision.ALLOWED
    assert order.index(b"secret") == different


def test_addresses_share_the_queue_and_a_new_one_always_gets_in() -> None:
    users = Users({"ada": hash_of(b"secret")})

    async def flood() -> tuple[list[int], Decision]:
        authenticator = Authenticator()

        async def wrong(address: int, number: int) -> Decision:
            return await authenticator.decide(users, f"192.0.2.{address}", header("ada", f"wrong {number}"))

        asked = [[asyncio.create_task(wrong(address, number)) for number in range(100)] for address in range(6)]
        await asyncio.sleep(0)
        right = await authenticator.decide(users, "192.0.2.99", header("ada", "secret"))
        answers = [await asyncio.gather(*tasks) for tasks in asked]
        return [answered.count(Decision.DENIED) for answered in answers], right

    checked, right = asyncio.run(flood())
    assert right is Decision.ALLOWED
    assert all(checked)
    assert sum(checked) <= MAX_PENDING + len(checked)


def test_whoever_has_proved_himself_does_not_wait_even_behind_his_own_flood(costs: list[int]) -> None:
    users = Users({"ada": hash_of(b"secret")})
    assert users.check("ada", b"secret")

    async def flood() -> Decision:
        authenticator = Authenticator()
        wrong = [
            asyncio.create_task(authenticator.decide(users, "192.0.2.1", header("ada", "wrong"))) for _ in range(200)
        ]
        await asyncio.sleep(0)
        answer = await authenticator.decide(users, "192.0.2.1", header("ada", "secret"))
        assert not any(task.done() and task.result() is Decision.DENIED for task in wrong)
        await asyncio.gather(*wrong)
        return answer

    assert asyncio.run(flood()) is Decision.ALLOWED


def test_an_authenticator_remembers_no_finished_check() -> None:
    users = Users({"ada": hash_of(b"secret")})
    authenticator = Authenticator()

    async def ask() -> None:
        await asyncio.gather(*(authenticator.decide(users, f"192.0.2.{n}", header("ada", "wrong")) for n in range(20)))

    asyncio.run(ask())
    assert (authenticator._pending, authenticator._shared, dict(authenticator._network_locks)) == ({}, 0, {})


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (header("ada", "a:b"), ("ada", b"a:b")),
        (header("", ""), ("", b"")),
        ("basic  " + header("ada", "x").split()[1], ("ada", b"x")),
        (None, None),
        ("", None),
        ("Bearer abc", None),
        ("Basic", None),
        ("Basic ***", None),
        ("Basic YWRh", None),  # no colon
        ("Basic " + base64.b64encode(b"\xff:x").decode(), None),
        ("Basic é", None),
    ],
)
def test_an_authorization_header_is_read_or_is_none(written: str | None, read: tuple[str, bytes] | None) -> None:
    assert parse_credentials(written) == read


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("", ""),
    ],
)
def test_an_address_stands_for_as_many_as_one_client_can_have(address: str, network: str) -> None:
    assert network_of(address) == network
