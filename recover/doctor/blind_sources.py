"""Consequences of a source that the agent of a node cannot read, in the words that `rekindle doctor` uses for
a job and for an installation. Pure."""

from __future__ import annotations

from detectors.wire.contract import Source

__all__ = ["UNSEEN"]

UNSEEN: dict[Source, str] = {
    Source.KMSG: "Rekindle sees no Xids there, and no faults of PCIe, memory or the host. If a rank fails, "
    "Rekindle cannot tell whether the node or the program is the culprit",
    Source.NVML: "Rekindle does not see faults that only the driver shows, such as rising error counters",
    Source.PODS: "Rekindle assumes that every GPU pod of the node holds the broken device",
    Source.LOGS: "Rekindle does not read steps and errors of ranks, and does not notice a hang",
    Source.FABRIC: "Rekindle does not notice that the network port of a rank has lost its link",
    Source.HOST: "Rekindle does not know why a node has booted, or whether its clock is wrong",
    Source.VOLUMES: "if a volume of a rank is full, does not answer, or fails, the Incident does not name "
    "the volume",
}
