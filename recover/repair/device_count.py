"""How many devices a node must show after its repair; mend.py asks before the repair begins. Pure.

What a kubelet offers is a number of places for pods, and a number of devices only where each is given to one
pod as a whole. A guess would fail the validation of every shared node, so what is not known is told so.
"""

from __future__ import annotations

from detectors.text.pci import parse_pci
from detectors.wire.contract import NodeHealth, SubjectKind
from detectors.wire.open_findings import is_open
from recover.model import Node

__all__ = ["devices_expected"]

_WHOLE = "nvidia.com/gpu"
"""What the kubelet offers. Devices of other vendors are not seen by the validation."""
_COUNT = "nvidia.com/gpu.count"
"""Label of NVIDIA's feature discovery: how many GPUs are built in. With MIG strategy `single` it counts MIG
devices, and the product's name says so."""
_PRODUCT = "nvidia.com/gpu.product"
_MIG_STRATEGY = "nvidia.com/mig.strategy"
_REPLICAS = "nvidia.com/gpu.replicas"
_SHARED_BY = ("hami.io/node-", "volcano.sh/node-vgpu-")
"""Beginnings of annotations of plugins that offer one GPU several times under the name of a whole one."""
_PARTS = frozenset({"tencent.com/vcuda-core", "tencent.com/vcuda-memory", "nvidia.com/mps-core"})


def devices_expected(node: Node, health: NodeHealth | None) -> int:
    """0 where nobody can tell. Of the agent's inventory, the label and what the kubelet offers the largest
    counts: the broken device may have left the first and the last, the label is old after a card was added,
    and an agent that somebody else speaks for must not let a node pass that is short of devices."""
    offered = 0 if _is_shared(node) else node.capacity.get(_WHOLE, 0)
    return max(_listed(health), _built_in(node), offered)


def _listed(health: NodeHealth | None) -> int:
    """By the agent, with those that it has found broken and lists no more."""
    if health is None or not health.status.devices:
        return 0
    listed = {parse_pci(device.pci) for device in health.status.devices}
    broken = {
        parse_pci(finding.subject.pci)
        for finding in health.status.findings
        if is_open(finding)
        and finding.boot_id == health.status.boot_id
        and finding.subject.kind is SubjectKind.DEVICE
    }
    return len(health.status.devices) + len(broken - listed - {None})


def _built_in(node: Node) -> int:
    label = node.labels.get(_COUNT, "")
    counts_mig = node.labels.get(_MIG_STRATEGY) == "single" and "-MIG-" in node.labels.get(_PRODUCT, "")
    return int(label) if label.isdecimal() and len(label) < 4 and not counts_mig else 0


def _is_shared(node: Node) -> bool:
    """Whether several pods may be given one device."""
    return (
        node.labels.get(_REPLICAS, "1") not in ("", "0", "1")
        or node.labels.get(_MIG_STRATEGY, "none") not in ("", "none")
        or any(name.startswith(_SHARED_BY) for name in node.annotations)
        or any(
            name in _PARTS or name.endswith(".shared") or name.startswith("nvidia.com/mig-")
            for name in node.capacity
        )
    )
