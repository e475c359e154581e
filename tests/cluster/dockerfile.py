"""Executes a Dockerfile without Docker, on files from Debian in place of its base. So one Dockerfile
describes both the image that people build and the image that the cluster runs.

It knows the instructions that the project's Dockerfile uses, and refuses others. Every stage is an overlay
over the base. Its RUN steps see both, and what they write is kept separately as the image's own layer. If a
RUN step and all steps before it are unchanged, the files that the step wrote come from the cache, so the
locked packages are fetched only once.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

__all__ = ["Built", "DockerfileError", "Instruction", "carried_out", "inputs_digest", "parsed"]

_PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "PIP_CERT", "PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT")
"""Environment variables by which this machine reaches the package index. The steps also see the paths that
these variables name."""
_SHOWN = ("/etc/resolv.conf", "/etc/ssl/certs")
_TAR = ("tar", "--numeric-owner", "--xattrs", "--xattrs-include=trusted.*")
"""Command that also stores the marks of an overlay, which record the base files that a step has removed."""
_RUN = """
set -e
mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$UPPER,workdir=$WORK" "$MERGED"
mount -t proc proc "$MERGED/proc"
mount --bind /dev "$MERGED/dev"
for path in $SHOWN; do mount --bind "$path" "$MERGED$path"; done
exec env --ignore-environment "$@" chroot "$MERGED" /bin/sh -c "cd '$FOLDER' && $STEP"
"""


class DockerfileError(Exception):
    """An instruction cannot be executed. The message names the instruction."""


class Instruction(msgspec.Struct, frozen=True):
    word: str
    rest: str

    def __str__(self) -> str:
        return f"{self.word} {self.rest}"


class Built(msgspec.Struct, frozen=True):
    """The result of the last stage."""

    layer: Path
    """Folder with the files that the stage has in addition to the base's files."""
    on_base: bool
    """False if the stage is built from scratch: the layer is then the whole image."""
    env: dict[str, str]
    user: str
    entrypoint: list[str]


class _Stage:
    """One FROM and the instructions that follow it."""

    def __init__(self, folder: Path, *, on_base: bool) -> None:
        self.on_base = on_base
        self.upper = folder / "upper"
        self.upper.mkdir(parents=True)
        self.env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.arguments: dict[str, str] = {}
        """Variables that the steps after an ARG see, and that the image does not have."""
        self.folder = "/"
        self.user = ""
        self.entrypoint: list[str] = []
        self.history = hashlib.sha256()
        """Hash of everything from which the stage's files are made."""

    def inside(self, path: str) -> Path:
        return self.upper / os.path.join(self.folder, path).lstrip("/")


def parsed(text: str) -> list[Instruction]:
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    words = [line.split(maxsplit=1) for line in lines if not line.lstrip().startswith("#")]
    return [Instruction(word, rest) for word, rest in words]


def inputs_digest(dockerfile: Path, base_name: str) -> str:
    """Returns a digest of everything from which the image is made. The digest is the same if nothing has
    changed."""
    text = dockerfile.read_text(encoding="utf-8")
    digest = hashlib.sha256(f"{base_name}\n{text}".encode())
    for step in parsed(text):
        if step.word == "COPY" and not step.rest.startswith("--from="):
            digest.update(_digest_of(dockerfile.parent / word for word in step.rest.split()[:-1]))
    return digest.hexdigest()


def carried_out(dockerfile: Path, base: Path, *, work: Path, cache: Path, base_name: str) -> Built:
    """Executes the Dockerfile on the folder `base`, which `base_name` identifies. Raises DockerfileError."""
    stages: dict[str, _Stage] = {}
    stage = None
    used: set[Path] = set()
    for step in parsed(dockerfile.read_text(encoding="utf-8")):
        if step.word == "ARG" and stage is None:
            continue  # the base's name: it is an argument here
        if step.word == "FROM":
            names = step.rest.split()
            if names[0] not in ("${BASE}", "scratch"):
                raise DockerfileError(f"{step}: only ${{BASE}} and scratch are known")
            stage = _Stage(work / f"stage-{len(stages)}", on_base=names[0] != "scratch")
            stages[names[-1] if len(names) == 3 else ""] = stage
            stage.history.update(base_name.encode())
            continue
        if stage is None:
            raise DockerfileError(f"{step}: before the first FROM")
        stage.history.update(f"\n{step}".encode())
        if step.word == "ARG" and step.rest == "BASE":
            stage.arguments["BASE"] = base_name
        elif step.word == "RUN" and not stage.on_base:
            raise DockerfileError(f"{step}: a stage from scratch has no shell")
        elif step.word == "RUN":
            used.add(_cached_run(stage, step, base, work, cache))
        elif step.word == "COPY":
            _copy(stage, step, dockerfile.parent, stages)
        else:
            _set(stage, step)
    if stage is None:
        raise DockerfileError(f"{dockerfile} has no FROM")
    for old in set(cache.glob("*.tar")) - used:
        old.unlink()
    return Built(stage.upper, stage.on_base, stage.env, stage.user, stage.entrypoint)


def _set(stage: _Stage, step: Instruction) -> None:
    if step.word == "WORKDIR":
        stage.folder = step.rest
        stage.inside(".").mkdir(parents=True, exist_ok=True)
    elif step.word == "ENV":
        for pair in shlex.split(step.rest):
            name, _, value = pair.partition("=")
            stage.env[name] = value.replace("$PATH", stage.env["PATH"])
    elif step.word == "USER":
        stage.user = step.rest
    elif step.word == "ENTRYPOINT":
        stage.entrypoint = msgspec.json.decode(step.rest, type=list[str])
    else:
        raise DockerfileError(f"{step}: this instruction is not known")


def _copy(stage: _Stage, step: Instruction, context: Path, stages: dict[str, _Stage]) -> None:
    words = step.rest.split()
    if words[0].startswith("--from="):
        source = stages[words.pop(0).removeprefix("--from=")]
        stage.history.update(source.history.digest())
        found = [source.upper / word.lstrip("/") for word in words[:-1]]
    else:
        found = [context / word for word in words[:-1]]
        _check_ignored(context, words[:-1])
        stage.history.update(_digest_of(found))
    target = stage.inside(words[-1])
    for path in found:
        ignored = shutil.ignore_patterns("__pycache__") if path.is_relative_to(context) else None
        if path.is_dir():  # the folder's contents are copied, as Docker does
            shutil.copytree(path, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        else:
            to = target / path.name if words[-1].endswith("/") else target
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, to)


def _check_ignored(context: Path, words: Sequence[str]) -> None:
    """Raises DockerfileError for files that .dockerignore leaves out, because Docker would not find them."""
    kept = (context / ".dockerignore").read_text(encoding="utf-8").split()
    for word in words:
        if f"!{word.split('/')[0]}" not in kept:
            raise DockerfileError(f"COPY {word}: .dockerignore leaves it out")


def _digest_of(paths: Iterable[Path]) -> bytes:
    digest = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(str(file).encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.digest()


def _cached_run(stage: _Stage, step: Instruction, base: Path, work: Path, cache: Path) -> Path:
    """Executes a RUN step or takes its result from the cache. Returns the file that keeps everything that the
    stage has written so far."""
    kept = cache / f"{stage.history.hexdigest()}.tar"
    if kept.exists():
        shutil.rmtree(stage.upper)
        stage.upper.mkdir()
        _run([*_TAR, "--extract", f"--file={kept}", f"--directory={stage.upper}"], step)
        return kept
    print(f"  {step}", flush=True)
    for name in ("merged", "overlay-work"):
        (work / name).mkdir(exist_ok=True)
    shown = [path for path in (*_SHOWN, os.environ.get("PIP_CERT", "")) if path and Path(path).exists()]
    env = {
        **os.environ,
        "BASE": str(base),
        "UPPER": str(stage.upper),
        "WORK": str(work / "overlay-work"),
        "MERGED": str(work / "merged"),
        "SHOWN": " ".join(path for path in shown if (base / path.lstrip("/")).exists()),
        "FOLDER": stage.folder,
        "STEP": step.rest,
    }
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    given = [f"{name}={value}" for name, value in {**stage.env, **stage.arguments, **passed}.items()]
    alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    _run([*alone, "bash", "-c", _RUN, "step", *given], step, env)
    cache.mkdir(parents=True, exist_ok=True)
    new = work / "step.tar"
    _run([*_TAR, "--create", f"--file={new}", f"--directory={stage.upper}", "."], step)
    new.replace(kept)
    return kept


def _run(command: list[str], step: Instruction, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DockerfileError(f"{step} failed:\n{(done.stdout + done.stderr)[-2000:]}")
