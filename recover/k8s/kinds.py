"""Lists the kinds that the controller reads or writes. Pure."""

from __future__ import annotations

from detectors.wire.resource import Resource

__all__ = [
    "CONFIGMAPS",
    "EVENTS",
    "INCIDENTS",
    "JOBS",
    "JOBSETS",
    "LEASES",
    "NAMESPACES",
    "NODEHEALTHS",
    "NODES",
    "PADDLEJOBS",
    "PODS",
    "PYTORCHJOBS",
    "RECIPES",
    "RECOVERIES",
    "TFJOBS",
]

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
JOBS = Resource("batch", "v1", "jobs", "Job")
JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
PYTORCHJOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
PADDLEJOBS = Resource("kubeflow.org", "v1", "paddlejobs", "PaddleJob")
TFJOBS = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")
NODEHEALTHS = Resource("rekindle.dev", "v1alpha1", "nodehealths", "NodeHealth", namespaced=False)
INCIDENTS = Resource("rekindle.dev", "v1alpha1", "incidents", "Incident", namespaced=False)
RECIPES = Resource("rekindle.dev", "v1alpha1", "recipes", "Recipe", namespaced=False)
RECOVERIES = Resource("rekindle.dev", "v1alpha1", "recoveries", "Recovery")
