"""The PCI address of the GPU that a line names by a node of KFD, a minor number or an ordinal of its process."""

import re
from collections.abc import Mapping, Sequence

from exporter.core.facts import cards
from exporter.core.facts.gpus import Gpu
from exporter.core.model import Match

# How each signature names a GPU, other than by its PCI address: the capture, and what it is.
_KFD_NODE = {"rocr_memory_access_fault": "node", "rocr_hw_exception": "node", "rocr_memory_critical_error": "node"}
_MINOR = {"nv_rminit_failed": "minor", "nv_display_hang": "minor"}
_GPU_ID = {"nv_drm_error": "gpu_id"}
_ORDINAL = {"torch_oom": ("index", "device"), "gpu_out_of_memory": ("device",), "nccl_generic_warn": ("device",)}
_MASK = re.compile(r"env\.((?:CUDA|ROCR|HIP)_VISIBLE_DEVICES|ZE_AFFINITY_MASK|CUDA_DEVICE_ORDER)")


def card_named_in(
    match: Match, gpus: Sequence[Gpu], *, own: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> str | None:
    """The address of the GPU that a match names; None if it names none, or more than one it may be.

    own: the cards of its job, if known. environment: facts `env.NAME` of its processes; the log's own count less.
    """
    signature, captures = match.signature, match.captures
    if (node := captures.get(_KFD_NODE.get(signature, ""), "")).isdecimal():
        return cards.card_of_kfd_node(int(node), gpus)
    if (minor := captures.get(_MINOR.get(signature, ""), "")).isdecimal():
        return cards.card_of_minor(int(minor), gpus)
    if gpu_id := captures.get(_GPU_ID.get(signature, "")):
        return cards.card_of_gpu_id(int(gpu_id, 16), gpus)
    ordinal = next((captures[name] for name in _ORDINAL.get(signature, ()) if captures.get(name)), "")
    if not ordinal.isdecimal():
        return None
    variables = {**match.context.facts, **(environment or {})}
    masks = {mask[1]: value for name, value in variables.items() if (mask := _MASK.fullmatch(name))}
    return cards.card_of_ordinal(int(ordinal), masks, gpus, own)


def names_ordinal(match: Match) -> bool:
    """Whether a line names a GPU by an ordinal, so that masks in the environment of its process matter."""
    return match.signature in _ORDINAL
