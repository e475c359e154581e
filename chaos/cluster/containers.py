"""The interface between a kubelet and a runtime: run this container, end it, forget its pod. Two runtimes
implement it, process_runtime.py and virtual_runtime.py."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from chaos.apiserver.kinds import Object
from chaos.apiserver.store import MemoryCluster
from detectors.client.kubeapi import ApiError
from recover.k8s.kinds import CONFIGMAPS

__all__ = ["ContainerRun", "Exit", "Runtime", "StartError", "environment_of", "expanded"]

_FIELD_OF_MAP = re.compile(r"metadata\.(?P<map>labels|annotations)\['(?P<key>[^']+)'\]")
_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


class Exit(msgspec.Struct, frozen=True):
    """The end of a container. `message` is the content of its termination message file."""

    code: int
    signal: int = 0
    reason: str = ""
    message: str = ""

    @staticmethod
    def by_signal(number: int) -> Exit:
        return Exit(128 + number, signal=number)

    @staticmethod
    def out_of_memory() -> Exit:
        return Exit(137, signal=9, reason="OOMKilled")


class StartError(Exception):
    """The container cannot be started now. `reason` is what its waiting state shows."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class ContainerRun(msgspec.Struct, frozen=True):
    """One start of one container."""

    node: str
    pod: Object
    container: Object
    environment: dict[str, str]
    restart: int

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    @property
    def name(self) -> str:
        return str(self.container["name"])

    @property
    def container_id(self) -> str:
        """Id of the container. The same start has the same id, so that runs can be compared byte for byte."""
        return hashlib.sha256(f"{self.uid}/{self.name}/{self.restart}".encode()).hexdigest()


class Runtime(Protocol):
    async def start(self, run: ContainerRun) -> asyncio.Future[Exit]:
        """Starts the container. The result of the future is how the container ended. Raises StartError."""
        ...

    def send(self, pod_uid: str, number: int) -> None:
        """Sends a signal to all containers of the pod. SIGTERM requests that they end."""
        ...

    def kill(self, pod_uid: str, ended: Exit) -> None:
        """Ends all containers of the pod at once. They are reported as ended with `ended`."""
        ...

    def forget(self, node: str, pod: Object) -> None:
        """Removes the logs and folders of a pod that is gone, once its containers have ended."""
        ...


def environment_of(pod: Object, container: Object, store: MemoryCluster) -> dict[str, str]:
    """Returns the variables of envFrom and then of env, which overrides them. `$(NAME)` refers to an earlier
    variable. Raises StartError."""
    found: dict[str, str] = {}
    namespace = pod["metadata"]["namespace"]
    for source in container.get("envFrom", []):
        reference = source.get("configMapRef", {})
        data = _config_map(store, namespace, reference)
        found |= {source.get("prefix", "") + key: value for key, value in data.items()}
    for entry in container.get("env", []):
        if "value" in entry:
            found[entry["name"]] = expanded(entry["value"], found)
            continue
        value_from = entry.get("valueFrom", {})
        if "fieldRef" in value_from:
            found[entry["name"]] = _field(pod, value_from["fieldRef"]["fieldPath"])
        elif "configMapKeyRef" in value_from:
            reference = value_from["configMapKeyRef"]
            data = _config_map(store, namespace, reference)
            if reference["key"] in data:
                found[entry["name"]] = data[reference["key"]]
            elif not reference.get("optional"):
                raise StartError("CreateContainerConfigError", f"couldn't find key {reference['key']}")
    return found


def expanded(text: str, environment: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` by its value. Unknown names stay as they are, as in Kubernetes."""
    return _REFERENCE.sub(lambda found: environment.get(found[1], found[0]), text)


def _config_map(store: MemoryCluster, namespace: str, reference: Mapping[str, Any]) -> dict[str, str]:
    if not reference:
        return {}
    try:
        data: dict[str, str] = store.read(CONFIGMAPS, reference["name"], namespace).body.get("data", {})
    except ApiError as error:
        if reference.get("optional"):
            return {}
        raise StartError("CreateContainerConfigError", error.message) from error
    return data


def _field(pod: Object, path: str) -> str:
    if of_map := _FIELD_OF_MAP.fullmatch(path):
        return str(pod["metadata"].get(of_map["map"], {}).get(of_map["key"], ""))
    known = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "status.podIP": "127.0.0.1",
        "status.hostIP": "127.0.0.1",
    }
    if path not in known:
        raise StartError("CreateContainerConfigError", f"fieldRef {path} is not modelled")
    return str(known[path])
