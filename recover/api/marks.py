"""The taint, labels and annotations by which Rekindle marks nodes, scan pods and Jobs of repairs."""

from __future__ import annotations

from detectors.wire.contract import key

__all__ = [
    "AVOIDED",
    "EXCLUDED",
    "OWN_CONDITION",
    "QUARANTINE",
    "RELEASED",
    "RELEASED_FINDINGS",
    "REPAIR_OF",
    "SCAN_OF",
    "UNHEALTHY",
]

UNHEALTHY = key("unhealthy")
"""The taint; its value is the fault class."""

QUARANTINE = key("quarantined-by")
"""Annotation on a node: who quarantined it, and what undoes it."""

RELEASED = key("released-at")
"""Annotation on a node: when a person last released it, or a repair gave it back."""

RELEASED_FINDINGS = key("released-findings")
"""Annotation on a node: which findings that release has answered."""

OWN_CONDITION = "AcceleratorHealthy"
"""Type of the Node condition that Rekindle writes where a setting asks for it."""

SCAN_OF = key("scan-of")
"""Label on a scan pod: the recovery that it works for."""

REPAIR_OF = key("repair")
"""Label on a Job of a repair, and on its pod, in our own namespace: the Incident whose node it mends."""

EXCLUDED = key("excluded")
"""Annotation on a scan pod: the steps that it must not choose, since they failed to load."""

AVOIDED = key("avoided")
"""Annotation on a scan pod: the hosts of broken nodes that its affinity keeps out."""
