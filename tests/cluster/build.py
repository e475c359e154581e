"""`python -m tests.cluster.build` makes and caches what a real cluster needs in addition to its control
plane.

The programs of a node are built from their Go modules. debootstrap makes the files of the pods' image from
Debian's packages. debootstrap, runc, the CNI plugins and iptables must be installed: `--lacking` prints the
packages that are missing, and makes nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.control_plane.build import MODULES as CONTROL_PLANE_MODULES
from tests.control_plane.build import PARTS as CONTROL_PLANE
from tests.control_plane.build import BuildError, Part, Programs, build, parts_cache
from tests.control_plane.build import cached as cached_parts

__all__ = ["CNI_PLUGINS", "PACKAGES", "base_image_files", "cached", "main"]

COMMAND = "python -m tests.cluster.build"
MODULES = Path(__file__).parent / "modules"
CNI_PLUGINS = Path("/usr/lib/cni")
PACKAGES = {
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "debootstrap": "debootstrap",
    str(CNI_PLUGINS / "ptp"): "containernetworking-plugins",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "buildah": "buildah",
    "cc": "build-essential",
}
"""Debian package of each program."""
SUITE = "bookworm"
INCLUDED = ("python3", "python3-pip", "python3-venv", "python-is-python3", "ca-certificates")
_NOT_NEEDED = (
    "var/cache/apt/*",
    "var/lib/apt/lists/*",
    "usr/share/doc/*/*",
    "usr/share/locale/*",
    "usr/share/man/*",
)
_KEPT = "copyright"
"""The file that is kept in usr/share/doc, as in the slim images of Debian."""

PARTS = (
    Part(
        "kubernetes-node",
        "k8s.io/kubernetes",
        {name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kubelet", "kube-proxy")},
        wrapper=CONTROL_PLANE_MODULES / "kubernetes",
    ),
    Part(
        "containerd",
        "github.com/containerd/containerd/v2",
        {
            name: f"github.com/containerd/containerd/v2/cmd/{name}"
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        },
        wrapper=MODULES / "containerd",
        tags="no_btrfs,no_zfs,no_aufs,no_devmapper",
    ),
    Part(
        "coredns",
        "github.com/coredns/coredns",
        {"coredns": "github.com/coredns/coredns"},
        wrapper=MODULES / "coredns",
    ),
    Part(
        "node-helpers",
        "k8s.io/kubelet",
        {"pause": "./pause", "gpu-plugin": "./gpu-plugin"},
        wrapper=MODULES / "node-helpers",
    ),
)


def cached() -> Programs:
    """Returns all programs, including the control plane's. Raises BuildError if one is missing; the message
    names the command that makes it."""
    lacking = _lacking()
    if lacking:
        raise BuildError(f"programs are missing; install them with `apt-get install {' '.join(lacking)}`")
    if not base_image_files().exists():
        raise BuildError(f"{base_image_files()} is missing; make it with `{COMMAND}`")
    return cached_parts((*CONTROL_PLANE, *PARTS), COMMAND)


def _lacking() -> list[str]:
    """Returns the Debian packages of the programs that are missing here."""
    return sorted({package for program, package in PACKAGES.items() if shutil.which(program) is None})


def base_image_files() -> Path:
    """Returns the path of the tar with all files of the image that the tests' pods run."""
    return parts_cache() / f"image-{SUITE}-slim-{'-'.join(INCLUDED)}" / "base.tar"


def main(args: list[str]) -> int:
    """Makes what is missing. Returns 1, and prints one line that says why, if that fails."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--lacking", action="store_true", help="print the Debian packages that are missing")
    if parser.parse_args(args).lacking:
        print(" ".join(_lacking()))
        return 0
    try:
        build((*CONTROL_PLANE, *PARTS))
        _make_base_image()
        cached()
    except BuildError as error:
        print(f"{COMMAND}: {error}", file=sys.stderr)
        return 1
    print(parts_cache())
    return 0


def _make_base_image() -> None:
    made = base_image_files()
    if made.exists():
        return
    if os.geteuid() != 0:
        raise BuildError("the image's files can only be made by root")
    if shutil.which("debootstrap") is None:
        raise BuildError("debootstrap is missing; install it with `apt-get install debootstrap`")
    began = time.monotonic()
    print(f"making {made.parent.name} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=parts_cache()) as work:
        root = Path(work) / "root"
        # debootstrap runs in its own mount namespace, so that a killed debootstrap leaves no /proc mounted.
        alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        included = f"--include={','.join(INCLUDED)}"
        _run([*alone, "debootstrap", "--variant=minbase", included, SUITE, str(root)])
        for path in (path for pattern in _NOT_NEEDED for path in root.glob(pattern) if path.name != _KEPT):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        _run(["tar", "--create", "--numeric-owner", f"--file={work}/base.tar", f"--directory={root}", "."])
        made.parent.mkdir(exist_ok=True)
        (Path(work) / "base.tar").replace(made)
    print(f"  {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr)[-2000:]
        raise BuildError(f"{' '.join(command)} failed:\n{said}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
