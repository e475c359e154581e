"""Shared parts of the tests on real nodes: small pods, and waiting for conditions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tests.cluster.cluster import Cluster
from tests.cluster.images import BASE

__all__ = ["SUBDOMAIN", "apply", "pod_of", "until"]

LIMIT_S = 240.0
"""Time limit in seconds for things that take seconds: the machine may be busy."""
SUBDOMAIN = "pods"
_SERVER = """
import os, http.server
print("gpus", os.environ.get("NVIDIA_VISIBLE_DEVICES"), flush=True)
http.server.ThreadingHTTPServer(("", 8080), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


def pod_of(node: str) -> Mapping[str, Any]:
    """Returns a pod that uses one GPU of that node, prints the GPU's id, and serves HTTP on port 8080. Its
    name, and its DNS name below SUBDOMAIN, is `on-NODE`."""
    container = {
        "name": "main",
        "image": BASE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", _SERVER],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"on-{node}", "namespace": "default", "labels": {"app": SUBDOMAIN}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "hostname": f"on-{node}",
            "subdomain": SUBDOMAIN,
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
        },
    }


def apply(cluster: Cluster, *objects: Mapping[str, Any]) -> None:
    document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("apply", "--filename=-", given=msgspec.json.encode(document).decode())


def until(what: str, is_so: Callable[[], bool], limit_s: float = LIMIT_S) -> float:
    """Waits until the condition is true. Returns how long that took, in seconds. Fails after the limit."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < limit_s, f"{what}: not within {limit_s:g} s"
        time.sleep(0.2)
    return time.monotonic() - began
