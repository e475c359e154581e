"""Writes container images without a registry and without a builder: files, and a few lines of JSON around
them.

The format is that of `docker save`; `ctr images import` reads it on each node.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

__all__ = ["BASE", "PAUSE", "REGISTRY", "write_base", "write_image", "write_pause"]

REGISTRY = "cluster.test"
"""Registry name that does not exist, so nothing can be pulled."""
BASE = f"{REGISTRY}/base:1"
"""Image that the tests' pods run: Debian with Python."""
PAUSE = f"{REGISTRY}/pause:1"
"""Image of the container that keeps the namespaces of each pod."""
_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def write_base(archive: Path, files: Path) -> None:
    write_image(archive, BASE, [files], entrypoint=["/bin/bash"])


def write_pause(archive: Path, program: Path) -> None:
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        tar.add(program, arcname="pause")
    write_image(archive, PAUSE, [layer], entrypoint=["/pause"])
    layer.unlink()


def write_image(
    archive: Path,
    name: str,
    layers: Sequence[Path],
    *,
    entrypoint: Sequence[str],
    env: Mapping[str, str] = _ENV,
    user: str = "",
) -> None:
    """Writes an image archive. `layers` are tars, lowest first."""
    digests = [_digest(layer) for layer in layers]
    config = msgspec.json.encode(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Env": [f"{key}={value}" for key, value in env.items()],
                "Entrypoint": list(entrypoint),
                "User": user,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }
    )
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    names = [f"{digest}/layer.tar" for digest in digests]
    manifest = msgspec.json.encode([{"Config": config_name, "RepoTags": [name], "Layers": names}])
    with tarfile.open(archive, "w") as tar:
        for layer, layer_name in zip(layers, names, strict=True):
            tar.add(layer, arcname=layer_name)
        for text_name, text in ((config_name, config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(text_name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
