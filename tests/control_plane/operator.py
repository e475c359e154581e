"""The real training-operator beside a control plane, with the CRDs of the release that was built."""

from __future__ import annotations

import fcntl
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import msgspec
import yaml

from chaos.training.launch import free_port
from detectors.wire.resource import Resource
from recover.k8s.kinds import PADDLEJOBS, PYTORCHJOBS, TFJOBS
from tests.control_plane.build import Programs, parts_cache
from tests.control_plane.plane import ControlPlane, PlaneError, child

__all__ = ["training_operator", "wait_until_ready", "wait_until_watched"]

READY_S = 120.0
SERVED_S = 60.0
_CERTIFICATES = Path(tempfile.gettempdir()) / "k8s-webhook-server" / "serving-certs"
"""Folder in which the operator looks for its webhook's certificate, whatever its flags say. Nothing requests
the webhook here, because none is installed, so any certificate will do."""


@contextmanager
def training_operator(programs: Programs, plane: ControlPlane, flags: Sequence[str] = ()) -> Iterator[None]:
    """Runs the operator until the block ends, with `flags` as further flags. Raises PlaneError if the
    operator is not ready in time."""
    for file in programs.training_crds:
        crd = yaml.safe_load(file.read_text(encoding="utf-8"))
        plane.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", msgspec.json.encode(crd))
    for resource in (PYTORCHJOBS, PADDLEJOBS, TFJOBS):
        wait_until_watched(plane, resource)
    # The operator keeps its webhook's certificate in a Secret that its chart would have created.
    plane.post("/api/v1/namespaces", b'{"metadata": {"name": "kubeflow"}}')
    secret = b'{"metadata": {"name": "training-operator-webhook-cert"}}'
    plane.post("/api/v1/namespaces/kubeflow/secrets", secret)
    probe = free_port()
    command = [
        programs.path("training-operator"),
        f"-kubeconfig={plane.kubeconfig()}",
        "-enable-scheme=pytorchjob",
        "-enable-scheme=paddlejob",
        "-enable-scheme=tfjob",
        "-metrics-bind-address=0",
        f"-health-probe-bind-address=127.0.0.1:{probe}",
        f"-webhook-server-port={free_port([probe])}",
        *flags,
    ]
    with _certificates(plane), child(plane, command):
        wait_until_ready(plane, "training-operator", f"http://127.0.0.1:{probe}/readyz")
        yield


@contextmanager
def _certificates(plane: ControlPlane) -> Iterator[None]:
    """Creates the certificate files for which the operator waits, unless they exist. All processes of this
    machine share the files, so the last process that uses them removes what one of them has created."""
    folder = parts_cache()
    with (
        (folder / ".certificates-change").open("a") as change,
        (folder / ".certificates").open("a+") as users,
    ):
        with _locked(change):
            _lay_certificates(plane, users)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield
        finally:
            with _locked(change), suppress(BlockingIOError):  # another process still uses them
                fcntl.flock(users, fcntl.LOCK_UN)
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_certificates(users)


@contextmanager
def _locked(file: TextIO) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _lay_certificates(plane: ControlPlane, created: TextIO) -> None:
    """Creates the files that are missing, and their folders, and adds their paths to `created`."""
    missing = [p for p in (*reversed(_CERTIFICATES.parents), _CERTIFICATES) if not p.exists()]
    _CERTIFICATES.mkdir(parents=True, exist_ok=True)
    for name in ("tls.crt", "tls.key"):
        file = _CERTIFICATES / name
        if not file.exists():
            file.write_bytes((plane.folder / name).read_bytes())
            missing.append(file)
    created.writelines(f"{path}\n" for path in missing)
    created.flush()


def _remove_certificates(created: TextIO) -> None:
    created.seek(0)
    for path in reversed([Path(line) for line in created.read().splitlines()]):
        with suppress(OSError):  # somebody else has removed the file, or uses the folder
            path.rmdir() if path.is_dir() else path.unlink()
    created.truncate(0)


def wait_until_watched(plane: ControlPlane, resource: Resource) -> None:
    """Waits until the API server serves a watch of the new kind. A client that lists the kind earlier has to
    retry, and logs an error."""
    request = urllib.request.Request(
        f"{plane.url}{resource.path()}?watch=1&timeoutSeconds=1", headers=plane.credentials().headers()
    )
    deadline = time.monotonic() + SERVED_S
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(request, context=plane.trust(), timeout=5).close()
        except urllib.error.HTTPError as error:
            if error.code not in (404, 429):  # 429 while the API server prepares the kind
                raise
            time.sleep(0.05)
        else:
            return
    raise PlaneError(f"{resource.kind}s are not served within {SERVED_S:g} s of their CRD")


def wait_until_ready(plane: ControlPlane, program: str, url: str) -> None:
    """Waits until the program's probe reports that it is ready. Raises PlaneError, with the program's last
    lines, if that takes too long."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            pass
        time.sleep(0.05)
    log = (plane.folder / f"{program}.log").read_text(encoding="utf-8", errors="replace")
    raise PlaneError(f"{program} is not ready:\n" + "\n".join(log.splitlines()[-10:]))
