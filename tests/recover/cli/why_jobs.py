"""Makes the objects about which the tests ask `why` and `status`."""

from typing import Any

import msgspec

from chaos.apiserver.store import MemoryCluster
from detectors.wire.resource import Resource


def create(store: MemoryCluster, resource: Resource, example: Any, namespace: str = "") -> None:
    body = msgspec.to_builtins(example, str_keys=True)
    identity = {"apiVersion": resource.api_version, "kind": resource.kind}
    store.create(resource, {**body, **identity, "metadata": {"name": example.metadata.name}}, namespace)
    store.patch(
        resource, example.metadata.name, {"status": body["status"]}, namespace=namespace, subresource="status"
    )


def a_job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "metadata": {"name": name},
        "spec": {"completionMode": "Indexed", "completions": 4, "parallelism": 4, "template": template},
    }
