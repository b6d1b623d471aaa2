"""A file of TLS that cannot be used is named, with what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from exporter.net.credentials import client_context


@pytest.fixture
def site(tmp_path: Path) -> Path:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    certificate = authority.issue_cert("client")
    certificate.private_key_pem.write_to_path(str(tmp_path / "client.key"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "client.crt"))
    (tmp_path / "empty").touch()
    return tmp_path


def test_sound_files(site: Path) -> None:
    client_context(None, None, None)
    client_context(*(str(site / name) for name in ("ca.crt", "client.crt", "client.key")))


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (("nowhere", "client.crt", "client.key"), "nowhere"),
        (("empty", "client.crt", "client.key"), "empty"),
        (("ca.crt", "nowhere", "client.key"), "nowhere"),
        (("ca.crt", "client.crt", "nowhere"), "nowhere"),
        (("ca.crt", "ca.crt", "client.key"), "ca.crt"),
        (("ca.crt", "empty", "client.key"), "empty"),
    ],
)
def test_the_file_that_is_wrong_is_named(site: Path, names: tuple[str, ...], wrong: str) -> None:
    with pytest.raises((OSError, ValueError), match=str(site / wrong)):
        client_context(*(str(site / name) for name in names))


def test_a_bundle_of_all_authorities_may_be_given(site: Path) -> None:
    bundle = b"".join(trustme.CA().cert_pem.bytes() for _ in range(200))
    assert len(bundle) > 1 << 17
    (site / "ca.crt").write_bytes(bundle)
    client_context(site / "ca.crt", None, None)
