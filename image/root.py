"""`python image/root.py ROOT`: puts the files of the image into ROOT. The Dockerfile's build stage runs it.

ROOT gets Rekindle's virtual environment, the interpreter with its standard library, each shared library that
one of their files links to, the programs that a repair starts, and a few files of /etc. It gets no shell, no
pip and no package manager. papers.py then lists the packages of these files. Both programs need the standard
library alone.
"""

from __future__ import annotations

import compileall
import fnmatch
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from papers import Package, installed, write_papers

VENV = Path("/opt/rekindle")
WHEELS = Path("/wheels")
PROGRAMS = ("nsenter", "chroot", "ldconfig")
"""A reboot enters the node's mount namespace, and a reset runs the node's nvidia-smi in the node's root. A
container runtime may call ldconfig after it has added the libraries of a driver."""
LIBRARIES_OF = ("libc6", "libgcc-s1", "libstdc++6")
"""The libraries of a driver, which the container runtime adds, may need any library of these packages."""
SETTINGS = (
    "/etc/debian_version",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ssl/openssl.cnf",
    "/usr/lib/os-release",
)
"""NVIDIA's runtime puts a driver's libraries into Debian's multiarch folder if there is /etc/debian_version.
Source: libnvidia-container, src/nvc_container.c."""
LEFT_OUT = (
    *("config-*", "distutils", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "turtledemo", "venv"),
    *("test", "tests", "_test*.so", "_ctypes_test.*", "xx*.so"),
    *("curses", "_curses*.so", "readline.*", "tkinter", "_tkinter.*", "turtle.py"),
    *("dbm", "_dbm.*", "_gdbm.*", "nis.*", "sqlite3", "_sqlite3.*"),
    *("site-packages", "dist-packages", "__pycache__"),
)
"""Parts of the standard library: what developers use, and windows, terminals and databases."""
TEXTS = {
    "etc/passwd": "root:x:0:0:root:/:/sbin/nologin\nrekindle:x:65532:65532:rekindle:/:/sbin/nologin\n",
    "etc/group": "root:x:0:\nrekindle:x:65532:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
LINKS = {
    "etc/os-release": "../usr/lib/os-release",
    "usr/lib/ssl/cert.pem": "/etc/ssl/certs/ca-certificates.crt",
    "usr/lib/ssl/certs": "/etc/ssl/certs",
    "usr/lib/ssl/openssl.cnf": "/etc/ssl/openssl.cnf",
    "var/run": "/run",
}
FOLDERS = ("dev", "proc", "run", "sys", "tmp")
AUTHORITIES = ("/usr/share/ca-certificates", "/usr/local/share/ca-certificates")
"""Debian's, and those that an organisation has added to its own base."""


def main(root: Path) -> None:
    packages = installed(Path("/var/lib/dpkg"))
    venv = set(_walked(VENV, ("__pycache__", "[Aa]ctivate*")))
    venv -= {
        path for path in venv if path.parent == VENV / "bin" and not re.match("python|rekindle", path.name)
    }
    base = {*_of_python(), *(Path(path) for path in map(_program, PROGRAMS)), *_settings()}
    base |= {path for name in LIBRARIES_OF for path in _libraries(packages[name])}
    base |= _linked(venv | base)
    base = {each for path in base | {VENV / "bin/python"} for each in _with_targets(path)} - venv
    for path in sorted(venv | base):
        _copy(path, root)
    _write_settings(root)
    authorities = sorted(path for folder in AUTHORITIES for path in Path(folder).rglob("*.crt"))
    bundle = "".join(path.read_text(encoding="ascii") for path in authorities)
    _write(root / "etc/ssl/certs/ca-certificates.crt", bundle)
    write_papers(root, packages, base | set(authorities), VENV, WHEELS, os.environ.get("BASE", ""))
    _compile(root)
    subprocess.run(["ldconfig", "-r", str(root)], check=True)
    _make_equal(root)


def _of_python() -> Iterator[Path]:
    for key in ("stdlib", "platstdlib"):
        yield from _walked(Path(sysconfig.get_path(key)), LEFT_OUT)


def _settings() -> Iterator[Path]:
    for name in SETTINGS:
        yield from _walked(Path(name), ())


def _walked(path: Path, left_out: Collection[str]) -> Iterator[Path]:
    """The files and links at and below the path."""
    if not path.is_dir() or path.is_symlink():
        yield path
        return
    for entry in path.iterdir():
        if not any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in left_out):
            yield from _walked(entry, left_out)


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        sys.exit(f"the base has no {name}, which the image needs")
    return found


def _libraries(package: Package) -> Iterator[Path]:
    """Without the tables of old character sets and without the C library's own programs."""
    return (
        path for path in package.files if ".so" in path.name and "gconv" not in path.parts and path.is_file()
    )


def _linked(files: Iterable[Path]) -> set[Path]:
    """What the loader would load for these files."""
    programs = [str(path) for path in sorted(files) if path.is_file() and _is_elf(path)]
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    if missing := sorted(set(re.findall(r"(\S+) => not found", told))):
        sys.exit(f"libraries are missing in the base: {', '.join(missing)}")
    return {Path(path) for path in re.findall(r"(?:=> |^\t)(/\S+) \(0x", told, re.MULTILINE)}


def _is_elf(path: Path) -> bool:
    with path.open("rb") as opened:
        return opened.read(4) == b"\x7fELF"


def _with_targets(path: Path) -> Iterator[Path]:
    """The path and what it links to, each in its real folder: /lib may be a link to /usr/lib."""
    path = path.parent.resolve() / path.name
    yield path
    if path.is_symlink():
        yield from _with_targets(path.parent / os.readlink(path))


def _copy(path: Path, root: Path) -> None:
    to = root / path.relative_to("/")
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, to, follow_symlinks=False)


def _write_settings(root: Path) -> None:
    for name, text in TEXTS.items():
        _write(root / name, text)
    for folder in FOLDERS:
        (root / folder).mkdir()
    merged = {
        name: os.readlink(f"/{name}")
        for name in ("bin", "sbin", "lib", "lib64")
        if Path(f"/{name}").is_symlink()
    }
    for name, target in (LINKS | merged).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _compile(root: Path) -> None:
    """Nobody writes to the image's sources, so that nothing compares them with what was compiled."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    done = compileall.compile_dir(
        root, stripdir=str(root), prependdir="/", quiet=1, maxlevels=99, invalidation_mode=mode
    )
    if not done:
        sys.exit("a module could not be compiled")


def _make_equal(root: Path) -> None:
    """The same files make the same layer at every time, and nobody but root may write."""
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o111 else 0o644)
        os.utime(path, (0, 0), follow_symlinks=False)
    (root / "tmp").chmod(0o1777)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
