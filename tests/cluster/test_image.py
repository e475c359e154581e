"""The project's image: what it contains, what runs in it, and that a real builder makes the same from the
Dockerfile."""

from __future__ import annotations

import os
import subprocess
import tarfile
import time
from pathlib import Path

import msgspec
import pytest

from detectors import __version__
from tests.cluster.buildah import built_by_buildah
from tests.cluster.contents import UNWANTED, Contents, contents_of
from tests.cluster.product import product_image

pytestmark = pytest.mark.real_nodes

PAPERS = "usr/share/doc/rekindle"
EVERY_MODULE = """
import importlib, pkgutil, detectors, recover
for package in (detectors, recover):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
"""
TRUSTS_AUTHORITIES = "import ssl; print(ssl.create_default_context().cert_store_stats()['x509_ca'] > 100)"
NVML = """
import pynvml
try:
    pynvml.nvmlInit()
except pynvml.NVMLError_LibraryNotFound:
    print("no driver here")
"""
DRIVERS_LIBRARIES = """
import ctypes
for name in "c.so.6 m.so.6 dl.so.2 pthread.so.0 rt.so.1 gcc_s.so.1 stdc++.so.6".split():
    ctypes.CDLL(f"lib{name}")
"""


@pytest.fixture(scope="module")
def contents() -> Contents:
    return contents_of(product_image())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with all files of the image, as a container would have them."""
    folder = tmp_path_factory.mktemp("image")
    with tarfile.open(product_image()) as image:
        (manifest,) = msgspec.json.decode(image.extractfile("manifest.json").read())  # type: ignore[union-attr]
        (layer,) = manifest["Layers"]
        with tarfile.open(fileobj=image.extractfile(layer)) as files:
            files.extractall(folder, numeric_owner=True, filter="fully_trusted")
    return folder


def ran(root: Path, contents: Contents, *command: str) -> tuple[int, str]:
    """Runs the command as the image's user, with the image's environment and nothing else. Returns exit
    status and output."""
    alone = ["chroot", f"--userspec={contents.config['User']}", str(root)]
    env = dict(variable.split("=", 1) for variable in contents.config["Env"])
    chroot = next(path for path in ("/usr/sbin/chroot", "/usr/bin/chroot") if os.path.exists(path))
    done = subprocess.run(
        [*alone, *command], executable=chroot, env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", UNWANTED)
def test_the_image_lacks_what_only_builds_and_intruders_use(contents: Contents, name: str) -> None:
    assert contents.unwanted(name) == []


def test_all_files_are_roots_and_nobody_else_may_write_them(contents: Contents) -> None:
    assert {file.owner for file in contents.files.values()} == {(0, 0)}
    assert [path for path, file in contents.regular.items() if file.mode & 0o7022] == []
    folders = {path: file.mode for path, file in contents.files.items() if file.kind == tarfile.DIRTYPE}
    assert {path: mode for path, mode in folders.items() if mode != 0o755} == {"/tmp": 0o1777}


@pytest.mark.parametrize(
    "command",
    [
        "agent --help",
        "controller --help",
        "checkpoints scan --help",
        "validate --help",
        "reset-devices --help",
        "cleanup --help",
        "status --help",
        "crds",
    ],
)
def test_each_command_of_the_chart_starts(root: Path, contents: Contents, command: str) -> None:
    status, said = ran(root, contents, *contents.config["Entrypoint"], *command.split())
    assert (status, said != "") == (0, True), said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("/opt/rekindle/bin/rekindle", "--version"), f"rekindle {__version__}\n"),
        (("python", "-c", EVERY_MODULE), ""),
        (("python", "-c", TRUSTS_AUTHORITIES), "True\n"),
        (("python", "-c", NVML), "no driver here\n"),
        (("python", "-c", DRIVERS_LIBRARIES), ""),
        (("python", "-c", "print('\\u2713')"), "\u2713\n"),
    ],
)
def test_what_the_commands_need_is_there(
    root: Path, contents: Contents, command: tuple[str, ...], said: str
) -> None:
    assert ran(root, contents, *command) == (0, said)


@pytest.mark.parametrize("program", ["nsenter", "chroot"])
def test_the_programs_of_a_repair_are_there(root: Path, contents: Contents, program: str) -> None:
    status, said = ran(root, contents, program, "--version")
    assert (status, said.split()[0]) == (0, program)


def test_a_command_that_is_left_out_says_so(root: Path, contents: Contents) -> None:
    status, said = ran(root, contents, "rekindle", "demo")
    assert (status, ".venv/bin/rekindle demo" in said) == (2, True)


def test_each_package_stands_in_the_sbom_with_its_version_and_its_licence(root: Path) -> None:
    sbom = msgspec.json.decode((root / PAPERS / "sbom.cdx.json").read_bytes())
    found = {part["name"]: part for part in sbom["components"]}
    wheels = {
        path.name.split("-")[0].lower() for path in root.glob("opt/rekindle/lib/*/site-packages/*.dist-info")
    }
    records = {path.name for path in root.glob("var/lib/dpkg/status.d/*")}

    assert {name.replace("-", "_") for name, part in found.items() if "pypi" in part["purl"]} == wheels
    assert {name for name, part in found.items() if "pkg:deb" in part["purl"]} == records
    assert {"libc6", "openssl", "python3.11-minimal"} <= found.keys()
    assert [name for name, part in found.items() if not part["licenses"]] == []
    licences = (root / PAPERS / "licences.txt").read_text(encoding="utf-8")
    assert [name for name, part in found.items() if f"\n{name} {part['version']}: " not in licences] == []
    assert "no text of its licence" not in licences


def test_a_real_builder_makes_the_same_files_and_settings(tmp_path: Path, contents: Contents) -> None:
    began = time.monotonic()
    built = contents_of(built_by_buildah(tmp_path))
    print(f"\nbuildah: {time.monotonic() - began:.0f} s")

    assert built.files.keys() == contents.files.keys()
    assert [path for path, file in built.files.items() if file != contents.files[path]] == []
    settings = ("User", "Entrypoint")
    assert {key: built.config[key] for key in settings} == {key: contents.config[key] for key in settings}
    assert sorted(built.config["Env"]) == sorted(contents.config["Env"])
