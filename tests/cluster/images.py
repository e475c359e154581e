"""Container images without a registry and without a builder: files, and a few lines of JSON around them.

What is written is what `docker save` writes; `ctr images import` reads it on each node.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

__all__ = ["BASE", "PAUSE", "write_base", "write_image", "write_pause"]

BASE = "cluster.test/base:1"
"""Debian with Python: what the tests' pods run."""
PAUSE = "cluster.test/pause:1"
"""Holds the namespaces of each pod. `cluster.test` is no registry: nothing can be pulled from it."""


def write_base(archive: Path, files: Path) -> None:
    write_image(archive, BASE, [files], ["/bin/bash"])


def write_pause(archive: Path, program: Path) -> None:
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        tar.add(program, arcname="pause")
    write_image(archive, PAUSE, [layer], ["/pause"])
    layer.unlink()


def write_image(archive: Path, name: str, layers: Sequence[Path], command: Sequence[str]) -> None:
    """`layers` are tars, lowest first."""
    digests = [_digest(layer) for layer in layers]
    config = msgspec.json.encode(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"], "Cmd": list(command)},
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
