"""Counts how many devices a node must show after its repair. mend.py calls this before the repair begins.
Pure.

The capacity that a kubelet reports is a number of places for pods. It is a number of devices only if each
device is given to one pod as a whole. A guess would fail the validation of every shared node, so an unknown
number is reported as unknown (0).
"""

from __future__ import annotations

from detectors.text.pci import parse_pci
from detectors.wire.contract import NodeHealth, SubjectKind
from detectors.wire.open_findings import is_open
from recover.model import Node

__all__ = ["devices_expected"]

_WHOLE = "nvidia.com/gpu"
"""Resource that the kubelet reports for whole devices. The validation does not see devices of other
vendors."""
_COUNT = "nvidia.com/gpu.count"
"""Label of NVIDIA's feature discovery: the number of built-in GPUs. With MIG strategy `single` the label
counts MIG devices, and the product's name shows that."""
_PRODUCT = "nvidia.com/gpu.product"
_MIG_STRATEGY = "nvidia.com/mig.strategy"
_REPLICAS = "nvidia.com/gpu.replicas"
_SHARED_BY = ("hami.io/node-", "volcano.sh/node-vgpu-")
"""Beginnings of annotations of plugins that offer one GPU several times under the name of a whole GPU."""
_PARTS = frozenset({"tencent.com/vcuda-core", "tencent.com/vcuda-memory", "nvidia.com/mps-core"})


def devices_expected(node: Node, health: NodeHealth | None) -> int:
    """Returns the number of devices, or 0 if the number is unknown. The largest number counts among the
    agent's inventory, the label and the kubelet's capacity: the broken device may be missing from the first
    and the last, the label is out of date after a card was added, and a forged inventory must not let a node
    pass that lacks devices."""
    offered = 0 if _is_shared(node) else node.capacity.get(_WHOLE, 0)
    return max(_listed(health), _built_in(node), offered)


def _listed(health: NodeHealth | None) -> int:
    """Returns the number of devices in the agent's inventory, including broken devices that the agent no
    longer lists."""
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
    """Whether several pods may share one device."""
    return (
        node.labels.get(_REPLICAS, "1") not in ("", "0", "1")
        or node.labels.get(_MIG_STRATEGY, "none") not in ("", "none")
        or any(name.startswith(_SHARED_BY) for name in node.annotations)
        or any(
            name in _PARTS or name.endswith(".shared") or name.startswith("nvidia.com/mig-")
            for name in node.capacity
        )
    )
