"""Builds the image by a real builder: Debian's buildah, as root, on the base image of the cluster's tests.

The build uses no registry.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.cluster.build import base_image_files
from tests.cluster.images import write_image
from tests.cluster.product import DOCKERFILE, PRODUCT
from tests.cluster.record import run

__all__ = ["built_by_buildah"]

_PIP = {"PIP_CERT": "cert", "PIP_INDEX_URL": "index-url", "PIP_DEFAULT_TIMEOUT": "timeout"}
"""Settings by which this machine reaches the package index. The steps read them from a file, because a
variable would stay in the image."""
_SHOWN = "/etc/ssl/certs"


def built_by_buildah(work: Path) -> Path:
    """Builds the image and returns its archive, as `docker save` writes it. Takes a minute. Raises
    ClusterError with buildah's output."""
    files = base_image_files()
    base, archive = work / "base.tar", work / "built.tar"
    name = files.parent.name
    write_image(base, f"localhost/{name}:latest", [files], entrypoint=["/bin/bash"])
    pip = work / "pip.conf"
    lines = [f"{key} = {os.environ[variable]}" for variable, key in _PIP.items() if variable in os.environ]
    pip.write_text("\n".join(["[global]", *lines]), encoding="utf-8")
    shown = [f"--volume={_SHOWN}:{_SHOWN}:ro", f"--volume={pip}:/etc/pip.conf:ro"]
    # vfs and chroot need neither an overlay on the machine's own file system nor a further runtime.
    storage = [f"--root={work}/storage", f"--runroot={work}/run", "--storage-driver=vfs"]
    run("buildah", *storage, "pull", "--quiet", f"docker-archive:{base}")
    how = [
        "--isolation=chroot",
        "--network=host",
        "--pull-never",
        "--layers=false",
        f"--build-arg=BASE={name}",
    ]
    run("buildah", *storage, "build", *how, *shown, f"--tag={PRODUCT}", str(DOCKERFILE.parent))
    run("buildah", *storage, "push", "--quiet", PRODUCT, f"docker-archive:{archive}:{PRODUCT}")
    shutil.rmtree(work / "storage")  # 1 GB
    return archive
