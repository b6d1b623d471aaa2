"""The kubelet's PodResources over a Unix socket: the bytes of a real gRPC server (grpcio 1.85), whole and damaged."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.core.decoding.pod_resources import devices_of
from exporter.core.facts.gpus import Gpu
from exporter.net.grpc_unary import CallFailed, call
from exporter.node.pod_devices import METHOD, PodDevices

# A pod with two GPUs and a NIC, and one with a GPU that a resource claim (DRA) assigned.
ANSWER = bytes.fromhex(
    "000018040000000000000400400000000500400000000600004000fe0300000001000004080000000000003f00010000000401000000"
    "0000000408000000000000000005000008060000000000f49f0ddca0bcb34600004e01040000000188400c636f6e74656e742d747970"
    "65106170706c69636174696f6e2f677270634014677270632d6163636570742d656e636f64696e67176964656e746974792c20646566"
    "6c6174652c20677a697000011b00000000000100000001160a9a010a07747261696e2d3012026d6c1a8a010a07747261696e65721266"
    "0a0e6e76696469612e636f6d2f67707512284750552d35643363316630652d386134622d326636642d393163372d3365306237613964"
    "3463323112284750552d37373737373737372d386134622d326636642d393163372d3365306237613964346332311a0018ac0212140a"
    "0872646d612f68636112066d6c78355f301a000a770a05696e66657212037765621a690a04766c6c6d2a610a03677075120377656222"
    "550a430a416b38732e6770752e6e76696469612e636f6d2f636c61696d3d4750552d38383838383838382d386134622d326636642d39"
    "3163372d336530623761396434633231120e6770752e6e76696469612e636f6d00001e010500000001400b677270632d737461747573"
    "0130000c677270632d6d65737361676500"
)
NO_SUCH_METHOD = bytes.fromhex(
    "000018040000000000000400400000000500400000000600004000fe0300000001000004080000000000003f00010000000401000000"
    "000000040800000000000000000500000806000000000061f44fc1d23dfe3d00005001050000000188400c636f6e74656e742d747970"
    "65106170706c69636174696f6e2f67727063400b677270632d737461747573023132000c677270632d6d657373616765114d6574686f"
    "64206e6f7420666f756e6421"
)
CARDS = tuple(
    Gpu(pci=f"0000:{bus}:00.0", vendor="nvidia", unique_id=f"GPU-{uuid}-8a4b-2f6d-91c7-3e0b7a9d4c21")
    for bus, uuid in (("1b", "5d3c1f0e"), ("43", "77777777"), ("9b", "88888888"), ("c3", "99999999"))
)
NOW = 1_700_000_000.0
Serve = Callable[[bytes], Path]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A server that answers each connection with the same bytes, some at a time."""
    servers = []

    def start(answer: bytes) -> Path:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(1 << 16)
                for at in range(0, len(answer), 100):
                    self.request.sendall(answer[at : at + 100])
                while self.request.recv(1 << 16):  # until the client leaves
                    pass

        path = tmp_path / f"{len(servers)}.sock"
        server = socketserver.UnixStreamServer(str(path), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        return path

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def asked(socket: Path | None, now: float = NOW) -> PodDevices:
    devices = PodDevices(socket)
    devices.refresh(now, wait=True)
    return devices


def test_the_pod_that_has_a_card_is_known_while_it_has_it_and_a_little_longer(serve: Serve) -> None:
    devices = asked(serve(ANSWER))
    assert [devices.pods_with(card.pci, CARDS, NOW) for card in CARDS] == [("ml/train-0",)] * 2 + [("web/infer",), ()]
    assert devices.pods_with(CARDS[0].pci, CARDS, NOW + 14.0) == ("ml/train-0",)
    assert devices.pods_with(CARDS[0].pci, CARDS, NOW + 60.0) == ()
    assert devices.up is True


def test_a_kubelet_that_does_not_answer_is_down_and_what_was_known_stays(serve: Serve, tmp_path: Path) -> None:
    assert asked(None).up is None
    missing = asked(tmp_path / "none.sock")
    assert missing.up is False
    assert missing.failed.startswith("kubelet: ")
    path = serve(ANSWER)
    devices = asked(path)
    path.unlink()
    devices.refresh(NOW + 11.0, wait=True)
    assert devices.up is False
    assert devices.pods_with(CARDS[0].pci, CARDS, NOW + 11.0) == ("ml/train-0",)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (NO_SUCH_METHOD, "an error instead of a message"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "too long"),
        (struct.pack(">I", 4)[1:] + b"\x03\x00\x00\x00\x00\x01" + b"\x00" * 4, "reset"),
        (struct.pack(">I", 8)[1:] + b"\x07\x00\x00\x00\x00\x00" + b"\x00" * 8, "closed the connection"),
        (struct.pack(">I", 6)[1:] + b"\x00\x01\x00\x00\x00\x01" + b"\x01\x00\x00\x00\x01x", "uncompressed"),
    ],
)
def test_an_answer_that_is_not_one_is_told(serve: Serve, answer: bytes, why: str) -> None:
    with pytest.raises(CallFailed, match=why):
        call(serve(answer), METHOD, timeout=30)


def test_a_server_that_says_nothing_is_given_up(serve: Serve) -> None:
    with pytest.raises(TimeoutError):
        call(serve(ANSWER[:200]), METHOD, timeout=0.2)


def test_no_damaged_message_is_read_as_another(serve: Serve) -> None:
    message = call(serve(ANSWER), METHOD, timeout=30)
    whole = devices_of(message)
    assert len(whole) == 3
    for end in range(len(message)):
        try:
            found = devices_of(message[:end])
        except ValueError:
            continue
        assert found == whole[: len(found)]
    with pytest.raises(ValueError, match="too long"):
        devices_of(b"\xff" * 20)
