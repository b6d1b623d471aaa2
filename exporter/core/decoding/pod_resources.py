"""The answer of kubelet's PodResources API (v1, List): the devices of each container. Protobuf, read by hand.

https://github.com/kubernetes/kubelet/blob/master/pkg/apis/podresources/v1/api.proto
"""

from collections.abc import Iterator
from typing import NamedTuple

MAX_DEVICES = 4096
_WIRE_VARINT, _WIRE_64, _WIRE_BYTES, _WIRE_32 = 0, 1, 2, 5


class PodDevice(NamedTuple):
    """A device of a container, by the id that its device plug-in gave it."""

    namespace: str
    pod: str
    container: str
    resource: str  # nvidia.com/gpu, amd.com/gpu, gpu.intel.com/i915
    id: str


def devices_of(message: bytes) -> list[PodDevice]:
    """The GPUs in a ListPodResourcesResponse. Raises ValueError for what is not one."""
    devices = []
    for pod in _messages(message, 1):
        name, namespace = _text(pod, 1), _text(pod, 2)
        for container in _messages(pod, 3):
            for device in _messages(container, 2):  # ContainerDevices: resource_name, device_ids
                resource = _text(device, 1)
                if _is_gpu(resource):
                    ids = [value.decode(errors="replace") for value in _messages(device, 2)]
                    devices += [PodDevice(namespace, name, _text(container, 1), resource, id_) for id_ in ids]
            for claim in _messages(container, 5):  # DynamicResource: claim_resources with CDI devices
                for resource_of_claim in _messages(claim, 4):
                    for cdi in _messages(resource_of_claim, 1):
                        kind, _, id_ = _text(cdi, 1).partition("=")
                        if id_ and _is_gpu(kind):
                            devices.append(PodDevice(namespace, name, _text(container, 1), kind, id_))
    return devices[:MAX_DEVICES]


def _is_gpu(resource: str) -> bool:
    vendor, _, kind = resource.partition("/")
    is_gpu_vendor = vendor in ("nvidia.com", "amd.com", "gpu.intel.com") or vendor.endswith(".nvidia.com")
    return is_gpu_vendor and not kind.startswith(("nic", "vfio"))


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that have a length: texts and messages. Others are skipped. Raises ValueError."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == _WIRE_VARINT:
            _, at = _varint(message, at)
        elif wire in (_WIRE_64, _WIRE_32):
            at += 8 if wire == _WIRE_64 else 4
        elif wire == _WIRE_BYTES:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise ValueError("a field is cut short")
            yield number, message[at : at + length]
            at += length
        else:
            raise ValueError(f"unknown wire type {wire}")
    if at > len(message):
        raise ValueError("a field is cut short")


def _messages(message: bytes, number: int) -> list[bytes]:
    return [value for field, value in fields(message) if field == number]


def _text(message: bytes, number: int) -> str:
    return next((value.decode(errors="replace") for value in _messages(message, number)), "")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("a number is cut short")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number is too long")
