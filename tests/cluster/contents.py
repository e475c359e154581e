"""`python -m tests.cluster.contents [ARCHIVE]` prints what an image contains, in figures. The default is the
project's image.

`--files` prints each file with its mode, owner and size.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import stat
import sys
import tarfile
from pathlib import Path
from typing import Any

import msgspec

from tests.cluster.product import product_image

__all__ = ["UNWANTED", "Contents", "File", "contents_of", "main"]

UNWANTED = {
    "pip": ("*/site-packages/pip", "*/dist-packages/pip", "*/bin/pip*", "*/ensurepip"),
    "setuptools": ("*/site-packages/setuptools", "*/dist-packages/setuptools", "*/pkg_resources"),
    "apt": ("*/bin/apt*", "*/lib/apt", "*/libapt-*"),
    "dpkg": ("*/bin/dpkg*", "*/sbin/dpkg*"),
    "shell": ("*/bin/*sh", "*/bin/busybox"),
    "perl": ("*/bin/perl*", "*/perl-base"),
    "chaos": ("*/site-packages/chaos",),
    "tests": ("*/python3*/test", "*/python3*/unittest/test"),
}
"""Files that nobody needs at run time, as patterns of paths."""


class File(msgspec.Struct, frozen=True):
    kind: bytes
    """Type of the file, as in a tar."""
    mode: int
    owner: tuple[int, int]
    size: int
    target: str
    """Target of a link."""
    digest: str = ""


class Contents(msgspec.Struct, frozen=True):
    config: dict[str, Any]
    layers_bytes: list[int]
    files: dict[str, File]
    """Files by path. Files of upper layers replace files of lower layers."""

    @property
    def regular(self) -> dict[str, File]:
        return {path: file for path, file in self.files.items() if file.kind == tarfile.REGTYPE}

    def unwanted(self, name: str) -> list[str]:
        return sorted({path for pattern in UNWANTED[name] for path in fnmatch.filter(self.files, pattern)})


def contents_of(archive: Path) -> Contents:
    """Returns the contents of an archive that has the format of `docker save`."""
    sizes: list[int] = []
    files: dict[str, File] = {}
    with tarfile.open(archive) as image:
        (manifest,) = msgspec.json.decode(_bytes(image, "manifest.json"))
        config = msgspec.json.decode(_bytes(image, manifest["Config"]))["config"]
        for name in manifest["Layers"]:
            sizes.append(image.getmember(name).size)
            with tarfile.open(fileobj=image.extractfile(name)) as layer:
                entries = ((f"/{entry.name.removeprefix('./').strip('/')}", entry) for entry in layer)
                files |= {path: _file(layer, entry) for path, entry in entries if path not in {"/", "/."}}
    return Contents(config, sizes, files)


def _bytes(tar: tarfile.TarFile, name: str | tarfile.TarInfo) -> bytes:
    opened = tar.extractfile(name)
    assert opened is not None, name
    return opened.read()


def _file(layer: tarfile.TarFile, entry: tarfile.TarInfo) -> File:
    owner = entry.uid, entry.gid
    digest = hashlib.sha256(_bytes(layer, entry)).hexdigest() if entry.isreg() else ""
    return File(entry.type, stat.S_IMODE(entry.mode), owner, entry.size, entry.linkname, digest)


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", nargs="?", type=Path)
    parser.add_argument("--files", action="store_true", help="print each file, too")
    given = parser.parse_args(args)
    found = contents_of(given.archive or product_image())
    layers = " + ".join(f"{size / 1e6:.1f}" for size in found.layers_bytes)
    total = sum(file.size for file in found.regular.values())
    print(f"layers: {layers} MB; files: {len(found.regular)}, {total / 1e6:.1f} MB")
    print(f"setuid or setgid: {sum(bool(file.mode & 0o6000) for file in found.regular.values())}")
    for name in UNWANTED:
        paths = found.unwanted(name)
        more = f" and {len(paths) - 4} more" if len(paths) > 4 else ""
        print(f"{name:<10} {', '.join(paths[:4]) or '-'}{more}")
    for path, file in sorted(found.files.items()) if given.files else ():
        print(f"{file.mode:o} {file.owner[0]}:{file.owner[1]} {file.size:>9} {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
