"""`python -m tests.control_plane.build` builds the programs of a real control plane, and Helm, from Go
modules.

The versions are in modules/*/go.mod. A cache keeps the built files, in one folder for each part and version:
a new part or version builds only itself, and a second call finds everything built. The first build takes
minutes, so tests never build: they fail and name this command.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

__all__ = ["MODULES", "PARTS", "BuildError", "Part", "Programs", "build", "cached", "main", "parts_cache"]

MODULES = Path(__file__).parent / "modules"
GO_FALLBACK = "/usr/local/go/bin/go"
"""Path at which Go's own installation guide puts Go. Not every PATH contains it."""
COMMAND = "python -m tests.control_plane.build"
KWOK_STAGES = (
    "kustomize/stage/node/fast/node-initialize.yaml",
    "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "kustomize/stage/pod/fast/pod-ready.yaml",
    "kustomize/stage/pod/fast/pod-delete.yaml",
)
"""Stages of KWOK that the control plane uses. pod-complete is left out, because it ends every pod that
belongs to a Job."""


class BuildError(Exception):
    """The programs cannot be built; the message says what is missing."""


class Part(msgspec.Struct, frozen=True):
    """One wrapper module and the programs built from the module that it requires."""

    name: str
    module: str
    programs: dict[str, str]
    """Package of each program, by the program's name."""
    manifests: dict[str, tuple[str, ...]] = {}
    """Files of the module that make up each file beside the programs, by that file's name."""
    wrapper: Path | None = None
    """Folder of the wrapper module, if it is not the folder with the part's name."""
    tags: str = ""
    """Go build tags, separated by commas."""

    @property
    def source(self) -> Path:
        return self.wrapper or MODULES / self.name

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.programs, *self.manifests)


PARTS = (
    Part("etcd", "go.etcd.io/etcd/server/v3", {"etcd": "go.etcd.io/etcd/server/v3"}),
    Part(
        "kubernetes",
        "k8s.io/kubernetes",
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        },
    ),
    Part(
        "kubectl",
        "k8s.io/kubernetes",
        {"kubectl": "k8s.io/kubernetes/cmd/kubectl"},
        wrapper=MODULES / "kubernetes",
    ),
    Part(
        "kwok", "sigs.k8s.io/kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, {"kwok-stages.yaml": KWOK_STAGES}
    ),
    Part(
        "training-operator",
        "github.com/kubeflow/training-operator",
        {"training-operator": "github.com/kubeflow/training-operator/cmd/training-operator.v1"},
        {
            "pytorchjob-crd.yaml": ("manifests/base/crds/kubeflow.org_pytorchjobs.yaml",),
            "paddlejob-crd.yaml": ("manifests/base/crds/kubeflow.org_paddlejobs.yaml",),
            "tfjob-crd.yaml": ("manifests/base/crds/kubeflow.org_tfjobs.yaml",),
        },
    ),
    Part(
        "jobset",
        "sigs.k8s.io/jobset",
        {"jobset": "sigs.k8s.io/jobset"},
        {
            "jobset-crd.yaml": ("config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",),
            "jobset-webhooks.yaml": ("config/components/webhook/manifests.yaml",),
        },
    ),
    Part("helm-3", "helm.sh/helm/v3", {"helm3": "helm.sh/helm/v3/cmd/helm"}),
    Part("helm-4", "helm.sh/helm/v4", {"helm4": "helm.sh/helm/v4/cmd/helm"}),
)


class Programs(msgspec.Struct, frozen=True):
    """Paths of the built programs, and of the manifests beside them."""

    files: Mapping[str, Path]

    def path(self, name: str) -> str:
        return str(self.files[name])

    @property
    def kwok_stages(self) -> Path:
        return self.files["kwok-stages.yaml"]

    @property
    def training_crds(self) -> tuple[Path, ...]:
        return tuple(self.files[f"{kind}-crd.yaml"] for kind in ("pytorchjob", "paddlejob", "tfjob"))

    @property
    def jobset_crd(self) -> Path:
        return self.files["jobset-crd.yaml"]

    @property
    def jobset_webhooks(self) -> Path:
        return self.files["jobset-webhooks.yaml"]


def cached(parts: Sequence[Part] = PARTS, command: str = COMMAND) -> Programs:
    """Returns the programs of these versions. Raises BuildError, which names the command, if they are not
    built yet."""
    files = {name: _folder(part) / name for part in parts for name in part.files}
    missing = [f"{file.parent.name}/{file.name}" for file in files.values() if not file.exists()]
    if missing:
        lacking = ", ".join(missing)
        raise BuildError(f"{parts_cache()} lacks {lacking}; build the control plane with `{command}`")
    return Programs(files)


def main() -> int:
    """Builds what is missing. Returns 1, and prints one line that says why, if the build fails."""
    try:
        build(PARTS)
    except BuildError as error:
        print(f"{COMMAND}: {error}", file=sys.stderr)
        return 1
    print(parts_cache())
    return 0


def parts_cache() -> Path:
    """Returns the folder outside the repository that keeps everything that is built once."""
    root = os.environ.get("XDG_CACHE_HOME", "") or str(Path.home() / ".cache")
    return Path(root) / "rekindle" / "control-plane"


def _folder(part: Part) -> Path:
    return parts_cache() / f"{part.name}-{_version(part)}"


def _version(part: Part) -> str:
    text = (part.source / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"^(?:require)?\s*{re.escape(part.module)} (v\S+)", text, re.MULTILINE)
    assert found, f"{part.source}/go.mod does not require {part.module}"
    code = b"".join(file.read_bytes() for file in sorted(part.source.glob("**/*.go")))
    return f"{found[1]}-{hashlib.sha256(code).hexdigest()[:8]}" if code else found[1]


def build(parts: Sequence[Part]) -> None:
    """Builds the parts that are missing in the cache. Raises BuildError."""
    cache = parts_cache()
    cache.mkdir(parents=True, exist_ok=True)
    with _only_one(cache / ".lock"):
        unbuilt = [part for part in parts if not all((_folder(part) / name).exists() for name in part.files)]
        if not unbuilt:
            return
        go = _go(parts)
        # The build runs in a folder beside the final one and moves a finished part: an interrupted build
        # leaves no part that a later call would find.
        with tempfile.TemporaryDirectory(prefix=".building-", dir=cache) as work:
            for part in unbuilt:
                made = Path(work) / "made" / part.name
                made.mkdir(parents=True)
                _build_part(go, part, Path(work), made)
                _folder(part).mkdir(exist_ok=True)
                for name in part.files:
                    (made / name).replace(_folder(part) / name)


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another build is running: waiting for it", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _go(parts: Sequence[Part]) -> str:
    """Returns the Go command. Raises BuildError if Go is missing, or older than the modules require."""
    go = shutil.which("go") or shutil.which(GO_FALLBACK)
    wanted = _wanted_go(parts)
    if go is None:
        raise BuildError(f"Go is not installed; Go {wanted} or newer is needed")
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"go(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < tuple(map(int, wanted.split("."))):
        raise BuildError(f"{go} is {said.strip() or 'not usable'}; Go {wanted} or newer is needed")
    return go


def _wanted_go(parts: Sequence[Part]) -> str:
    texts = [(part.source / "go.mod").read_text(encoding="utf-8") for part in parts]
    versions = [re.search(r"^go (\d+)\.(\d+)", text, re.MULTILINE) for text in texts]
    return max(((int(v[1]), int(v[2])), f"{v[1]}.{v[2]}") for v in versions if v)[1]


def _build_part(go: str, part: Part, work: Path, made: Path) -> None:
    """Builds in a copy of the wrapper module, so that a build never changes the repository."""
    module = work / part.name
    shutil.copytree(part.source, module)
    began = time.monotonic()
    print(f"building {', '.join(part.programs)} {_version(part)} ...", file=sys.stderr, flush=True)
    for name, package in part.programs.items():
        flags = ["-mod=mod", "-trimpath", "-ldflags", _link_flags(part), f"-tags={part.tags}"]
        _run([go, "build", *flags, "-o", str(made / name), package], module)
    for copy, files in part.manifests.items():
        source = Path(_run([go, "list", "-mod=mod", "-m", "-f", "{{.Dir}}", part.module], module).strip())
        texts = [(source / file).read_text(encoding="utf-8") for file in files]
        (made / copy).write_text("\n---\n".join(texts), encoding="utf-8")
    print(f"  {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _link_flags(part: Part) -> str:
    """Returns linker flags that leave out the symbol tables. The flags also give Kubernetes its version, as
    in its releases."""
    if part.module != "k8s.io/kubernetes":
        return "-s -w"
    version = _version(part)
    major, minor, _ = version.removeprefix("v").split(".")
    told = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(["-s -w", *(f"-X {p}.{key}={value}" for p in packages for key, value in told.items())])


def _run(command: list[str], folder: Path) -> str:
    env = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
