"""Translates container paths into host paths. Local processes have no mount namespace of their own, because
the demo must run without privileges. So the process runtime rewrites the paths that it passes to a container:
each argument and variable that is a mount path, or begins with one. Programs, signals, exit codes, logs and
cgroup folders are real."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from chaos.apiserver.kinds import Object
from chaos.cluster.containers import StartError
from chaos.cluster.host import Host

__all__ = ["mounts_of", "rewritten"]


def mounts_of(pod: Object, container: Object, host: Host, volumes: Mapping[str, Path]) -> dict[str, Path]:
    """Returns mount path -> the folder behind it, which is created. `volumes` has the folder of each
    claim."""
    sources = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
    found = {}
    for mount in container.get("volumeMounts", []):
        source = sources.get(mount["name"])
        if source is None:
            raise StartError("CreateContainerConfigError", f"volume {mount['name']} is not in spec.volumes")
        folder = _folder(pod, source, host, volumes)
        if mount.get("subPath"):
            folder = folder / mount["subPath"]
        folder.mkdir(parents=True, exist_ok=True)
        found[mount["mountPath"].rstrip("/")] = folder
    return found


def _folder(pod: Object, source: Object, host: Host, volumes: Mapping[str, Path]) -> Path:
    if "persistentVolumeClaim" in source:
        claim = source["persistentVolumeClaim"]["claimName"]
        if claim not in volumes:
            raise StartError("ContainerCreating", f'persistentvolumeclaim "{claim}" not found')
        return Path(volumes[claim])
    if "hostPath" in source:
        return host.root / str(source["hostPath"]["path"]).lstrip("/")
    if "emptyDir" in source:
        return host.pod_folder(pod["metadata"]["uid"]) / "volumes" / str(source["name"])
    kind = next((key for key in source if key != "name"), "none")
    raise StartError("CreateContainerConfigError", f"volume {source['name']}: kind {kind} is not modelled")


def rewritten(text: str, mounts: Mapping[str, Path]) -> str:
    """Rewrites `/ckpt/x` and `--dir=/ckpt/x` to the host's path if /ckpt is mounted. The longest mount path
    applies."""
    option, equals, value = text.partition("=")
    if text.startswith("--") and equals:
        return f"{option}={rewritten(value, mounts)}"
    for path in sorted(mounts, key=len, reverse=True):
        if text == path or text.startswith(path + "/"):
            return str(mounts[path]) + text[len(path) :]
    return text
