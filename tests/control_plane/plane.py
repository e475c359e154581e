"""Starts and ends a real control plane: etcd and kube-apiserver, and on request the controller-manager, the
scheduler and KWOK, which plays the kubelets of Nodes labelled `type=kwok`.

Everything is in one temporary folder and on free loopback ports. Every process is a child that dies with this
process and is ended by its id.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from chaos.processes.children import die_with
from chaos.training.launch import free_port
from detectors.client.credentials import Credentials
from tests.control_plane.build import Programs

__all__ = [
    "ADMIN",
    "AUDIT_LAG_S",
    "AuditedWrite",
    "ControlPlane",
    "PlaneError",
    "Program",
    "child",
    "lay_users_and_audit",
    "run_etcd",
    "started",
]

READY_S = 180.0
SILENCE_S = 16
AUDIT_LAG_S = 1.0
"""Longest time until an answered write is in the audit log, in seconds. An object shows the write earlier."""
TROUBLE = re.compile(r"^[EF]\d{4} |ERROR|level=error|NotReady|became unready|is unresponsive", re.IGNORECASE)
"""Matches a line of klog that reports an error, an error line of KWOK, and the controller-manager's report of
a silent node."""
TROUBLES_MAX = 12
TROUBLE_CHARS = 300
LEASES = Path(__file__).parent / "node_leases.py"
DYING = Path(__file__).parent / "dying.yaml"
"""Stages of KWOK for the ways in which pods die, in addition to KWOK's own stages."""
ADMIN = "admin"
USERS = {ADMIN: "system:masters", "nobody": ""}
"""Group of each user. The token of a user is the user's name followed by `-token`. Controller and agents have
real tokens of their ServiceAccounts, which rights.py requests."""


AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, verbs: [create, update, patch, delete, deletecollection]}
- {level: None}
"""


class PlaneError(Exception):
    """A program ended by itself or did not become ready. The message shows its last lines."""


class _Reference(msgspec.Struct, rename="camel", frozen=True):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Answer(msgspec.Struct, frozen=True):
    code: int = 0


class AuditedWrite(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One write that the API server has answered, as its audit log reports it."""

    verb: str
    user: _User = _User()
    user_agent: str = ""
    object_ref: _Reference = _Reference()
    response_status: _Answer = _Answer()
    request_received_timestamp: datetime
    stage_timestamp: datetime

    @property
    def succeeded(self) -> bool:
        return 200 <= self.response_status.code < 300


class Program:
    """One program of the control plane. A test may kill it, stop it for a while, and start it again."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self._command = command
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    def start(self) -> None:
        """Starts the program with the same arguments each time, and appends to its log."""
        assert not self.alive, f"{self.name} runs already"
        parent = os.getpid()
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A signal from the terminal is for this process, which ends its children itself, in order.
                process_group=0,
                preexec_fn=lambda: die_with(parent),  # noqa: PLW1509  (this process has no threads yet)
            )

    def kill(self) -> None:
        """Kills the program at once: a graceful end has no use, because the data are deleted with the
        folder."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


class ControlPlane:
    """A running control plane, and the ways to reach it."""

    def __init__(self, folder: Path, port: int, address: str = "127.0.0.1") -> None:
        self.folder = folder
        self.url = f"https://{address}:{port}"
        self.ca_file = folder / "tls.crt"
        self.etcd_url = ""
        self.programs: dict[str, Program] = {}
        """Programs by name, for example `kube-apiserver`."""

    def run(self, stack: ExitStack, command: list[str], name: str = "") -> Program:
        """Starts a program, which is killed when the stack ends."""
        program = Program(name or Path(command[0]).name, command, self.folder)
        self.programs[program.name] = program
        program.start()
        stack.callback(program.kill)
        return program

    def wait_until_ready(self) -> None:
        """Waits for the API server. Raises PlaneError if it ends, or is not ready within READY_S."""
        for path in ("/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"):
            _wait_until_answered(self, path)

    def lose_history(self) -> None:
        """Removes old versions of objects, so that lists and watches cannot read them. etcd is compacted, as
        an API server does it every five minutes, and the API server is restarted, because it remembers what
        etcd has forgotten."""
        revision = self._ask_etcd("range", {"key": "AA=="})["header"]["revision"]
        self._ask_etcd("compaction", {"revision": revision, "physical": True})
        self.programs["kube-apiserver"].kill()
        self.programs["kube-apiserver"].start()
        self.wait_until_ready()

    def _ask_etcd(self, call: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(f"{self.etcd_url}/v3/kv/{call}", data=msgspec.json.encode(body))
        with urllib.request.urlopen(request, timeout=60) as answer:
            return msgspec.json.decode(answer.read())

    def troubles(self) -> str:
        """Returns the last lines of each program that report an error or a silent node: what the programs saw
        when a test failed."""
        told = (f"{name}:\n{_troubles(self.folder / f'{name}.log')}" for name in self.programs)
        return "\n".join(told)

    def audit_position(self) -> int:
        """Returns the present end of the audit log, for a later call of `audited`."""
        return (self.folder / "audit.log").stat().st_size

    def audited(self, since: int = 0) -> list[AuditedWrite]:
        """Returns all writes answered since that position, oldest first. The log lags by up to
        AUDIT_LAG_S."""
        with (self.folder / "audit.log").open("rb") as log:
            log.seek(since)
            lines = [line for line in log.read().splitlines(keepends=True) if line.endswith(b"\n")]
        return [msgspec.json.decode(line, type=AuditedWrite) for line in lines]

    def token(self, user: str) -> str:
        return f"{user}-token"

    def credentials(self, user: str = ADMIN) -> Credentials:
        return Credentials(self.url, token=self.token(user), ca_file=str(self.ca_file))

    def post(self, path: str, body: bytes) -> None:
        """Creates an object as the administrator. Raises urllib's HTTPError."""
        headers = {**self.credentials().headers(), "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=body, headers=headers)
        urllib.request.urlopen(request, context=self.trust(), timeout=120).close()

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    def client_certificate(self, user: str, group: str = "") -> tuple[Path, Path]:
        """Returns a certificate of that user and its key, signed by the authority that the API server
        trusts."""
        subject = f"/O={group}/CN={user}" if group else f"/CN={user}"
        certificate, key = self.folder / f"{user}.crt", self.folder / f"{user}.key"
        command = ["openssl", "req", "-x509", *_NEW_KEY, "-days", "2", "-subj", subject]
        command += ["-CA", str(self.ca_file), "-CAkey", str(self.folder / "tls.key")]
        _openssl([*command, "-keyout", str(key), "-out", str(certificate)])
        return certificate, key

    def kubeconfig(self, user: str = ADMIN) -> Path:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "local", "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)}}
            ],
            "users": [{"name": user, "user": {"token": self.token(user)}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": user}}],
            "current-context": "local",
        }
        # A program that has just been started may be reading the previous file.
        file, new = (self.folder / f"{user}.kubeconfig{end}" for end in ("", ".new"))
        new.write_text(yaml.safe_dump(document), encoding="utf-8")
        new.chmod(0o600)
        return new.replace(file)


@contextmanager
def started(
    programs: Programs, *, controllers: bool, port: int = 0, silence_s: int = SILENCE_S, gates: str = ""
) -> Iterator[ControlPlane]:
    """Yields a control plane: with `controllers`, everything that makes Jobs run on KWOK nodes; without, only
    etcd and the API server.

    A node that is silent for `silence_s` is not ready. Kubernetes' own 50 s are too long for a test. With a
    much shorter time more nodes than the test intends would become not ready on a busy machine, and with
    hundreds of nodes their heartbeats keep the machine busy. `gates` are features of Kubernetes, for example
    `Name=false`: without a feature the control plane behaves like a version that did not have the feature
    yet.

    Raises PlaneError. However the block ends, no process and no file is left behind.
    """
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="rekindle-control-plane-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        plane = ControlPlane(folder, port or free_port())
        _lay_files(plane)
        plane.etcd_url = run_etcd(stack, programs, plane)
        features = [f"--feature-gates={gates}"] if gates else []
        command = [*_api_server(programs, plane), *features]
        if not controllers:  # no controller creates the service account that pods get
            command.append("--disable-admission-plugins=ServiceAccount")
        plane.run(stack, command)
        plane.wait_until_ready()
        if controllers:
            manager, *others = _controllers(programs, plane, silence_s)
            for command in ([*manager, *features], *others):
                plane.run(stack, command)
            leases = [plane.url, plane.token(ADMIN), str(plane.ca_file), str(silence_s)]
            plane.run(
                stack, [sys.executable, "-m", "tests.control_plane.node_leases", *leases], "node-leases"
            )
        yield plane


def _lay_files(plane: ControlPlane) -> None:
    """Writes a key with a self-signed certificate, and tokens. The key also signs the tokens of service
    accounts and the certificates of users."""
    subject = ["-subj", "/CN=rekindle-control-plane", "-addext", "subjectAltName=IP:127.0.0.1"]
    usage = ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    command = ["openssl", "req", "-x509", *_NEW_KEY, "-days", "2", *subject, *usage]
    _openssl([*command, "-keyout", str(plane.folder / "tls.key"), "-out", str(plane.ca_file)])
    lay_users_and_audit(plane)


def lay_users_and_audit(plane: ControlPlane) -> None:
    """Writes the users' tokens and the policy of the audit log."""
    rows = [f'{plane.token(user)},{user},uid-{user},"{group}"\n' for user, group in USERS.items()]
    (plane.folder / "tokens.csv").write_text("".join(rows), encoding="utf-8")
    (plane.folder / "audit-policy.yaml").write_text(AUDIT_POLICY, encoding="utf-8")
    (plane.folder / "audit.log").touch()


_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def _openssl(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PlaneError(f"openssl made no certificate:\n{done.stderr[-1000:]}")


def run_etcd(stack: ExitStack, programs: Programs, plane: ControlPlane) -> str:
    taken: list[int] = [int(plane.url.rpartition(":")[2])]
    taken.append(free_port(taken))
    client, peer = (f"http://127.0.0.1:{port}" for port in (taken[1], free_port(taken)))
    command = [programs.path("etcd"), "--unsafe-no-fsync", f"--data-dir={plane.folder / 'etcd'}"]
    command += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
    command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"]
    command += [f"--initial-cluster=default={peer}", "--log-level=warn"]
    # Without this flag a watch of a quiet kind never gets a bookmark (kubeadm sets 5 s).
    command += ["--watch-progress-notify-interval=1s"]
    plane.run(stack, command)
    return client


def _api_server(programs: Programs, plane: ControlPlane) -> list[str]:
    key, certificate = str(plane.folder / "tls.key"), str(plane.ca_file)
    port = plane.url.rpartition(":")[2]
    return [
        programs.path("kube-apiserver"),
        f"--etcd-servers={plane.etcd_url}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={certificate}",
        f"--token-auth-file={plane.folder / 'tokens.csv'}",
        f"--service-account-key-file={certificate}",
        f"--service-account-signing-key-file={key}",
        f"--service-account-issuer={plane.url}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--endpoint-reconciler-type=none",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        f"--audit-policy-file={plane.folder / 'audit-policy.yaml'}",
        f"--audit-log-path={plane.folder / 'audit.log'}",
    ]


def _controllers(programs: Programs, plane: ControlPlane, silence_s: int) -> list[list[str]]:
    kubeconfig = f"--kubeconfig={plane.kubeconfig()}"
    return [
        [
            programs.path("kube-controller-manager"),
            kubeconfig,
            "--leader-elect=false",
            "--use-service-account-credentials=false",
            f"--service-account-private-key-file={plane.folder / 'tls.key'}",
            f"--root-ca-file={plane.ca_file}",
            "--secure-port=0",
            # A dead node should become NotReady within seconds, not after Kubernetes' own 50 s.
            "--node-monitor-period=1s",
            f"--node-monitor-grace-period={silence_s}s",
        ],
        [programs.path("kube-scheduler"), kubeconfig, "--leader-elect=false", "--secure-port=0"],
        [
            programs.path("kwok"),
            kubeconfig,
            f"--config={programs.kwok_stages}",
            f"--config={DYING}",
            "--manage-nodes-with-label-selector=type=kwok",
            "--node-lease-duration-seconds=0",  # node_leases.py renews them
            "--node-ip=127.0.0.1",
        ],
    ]


@contextmanager
def child(plane: ControlPlane, command: list[str]) -> Iterator[None]:
    """Runs one more process beside the control plane, with its output in the plane's folder."""
    with ExitStack() as stack:
        plane.run(stack, command)
        yield


def _wait_until_answered(plane: ControlPlane, path: str) -> None:
    trust = plane.trust()
    request = urllib.request.Request(plane.url + path, headers=plane.credentials().headers())
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if not plane.programs["kube-apiserver"].alive:
            break
        try:
            with urllib.request.urlopen(request, context=trust, timeout=10) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            pass
        time.sleep(0.05)
    raise PlaneError(f"the API server does not answer {path}:\n{_last_lines(plane.folder)}")


def _troubles(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([line[:TROUBLE_CHARS] for line in lines if TROUBLE.search(line)][-TROUBLES_MAX:])


def _last_lines(folder: Path) -> str:
    tails: Mapping[str, str] = {
        log.name: "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
        for log in sorted(folder.glob("*.log"))
    }
    return "\n".join(f"{name}:\n{tail}" for name, tail in tails.items())
