"""The taint, labels and annotations by which Rekindle marks nodes, scan pods and Jobs of repairs,
and the controller's name in other objects."""

from __future__ import annotations

from detectors.wire.contract import key

__all__ = [
    "AVOIDED",
    "CONTROLLER_NAME",
    "EXCLUDED",
    "OWN_CONDITION",
    "QUARANTINE",
    "RELEASED",
    "RELEASED_FINDINGS",
    "REPAIR_OF",
    "SCAN_OF",
    "UNHEALTHY",
]

CONTROLLER_NAME = "rekindle-controller"
"""The controller's name in the managedFields of the objects that it writes: the first part of its user
agent."""

UNHEALTHY = key("unhealthy")
"""Key of the taint; its value is the fault class."""

QUARANTINE = key("quarantined-by")
"""Annotation on a node: who quarantined the node, and the facts to undo the quarantine."""

RELEASED = key("released-at")
"""Annotation on a node: when a person last ended the quarantine, or a repair returned the node to service."""

RELEASED_FINDINGS = key("released-findings")
"""Annotation on a node: the findings that the end of the quarantine has answered."""

OWN_CONDITION = "AcceleratorHealthy"
"""Type of the Node condition that Rekindle writes if a setting enables it."""

SCAN_OF = key("scan-of")
"""Label on a scan pod: the Recovery for which the pod works."""

REPAIR_OF = key("repair")
"""Label on a Job of a repair, and on its pod, in the namespace of the release: the Incident whose node the
Job repairs."""

EXCLUDED = key("excluded")
"""Annotation on a scan pod: the steps that the scan must not choose, because they failed to load."""

AVOIDED = key("avoided")
"""Annotation on a scan pod: the hosts of broken nodes that its affinity excludes."""
