"""One node: a process tree in its own namespaces, with its own containerd, kubelet and kube-proxy.

SIGKILL of its pid 1 is the crash of a machine: every container, mount and link of the node goes with it.
Starting it again is a boot: its disk is unchanged, the boot id is new and the kernel log is empty.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import yaml

from chaos.processes.children import die_with
from tests.cluster.build import CNI_PLUGINS
from tests.cluster.gpus import gpu_id, lay_driver
from tests.cluster.images import PAUSE
from tests.cluster.network import DNS, GATEWAY, SERVICES, connect, cut, node_address, pods_of
from tests.cluster.pki import client_kubeconfig, issue
from tests.cluster.record import ClusterError, Record, cgroup_hierarchies, remove_cgroup, run
from tests.cluster.sysfs import lay_sysfs
from tests.control_plane.build import Programs
from tests.control_plane.plane import ControlPlane

__all__ = ["Node"]

INIT = Path(__file__).parent / "node-init.sh"
CRASHED_S = 30.0
SILENCE_S = 20
"""Time in seconds without a renewed lease after which Kubernetes considers a node dead. Kubernetes' 50 s are
long for a test. With fewer seconds than an API server needs for a restart on a busy machine, all nodes would
count as dead."""
_SYSTEMCTL = """#!/bin/sh
# Simulated: nothing is rebooted before the node's keeper does it.
echo "$@" >{asked}
"""
_CONTAINERD = """
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
# NRI would make folders in /opt and /etc of the machine.
disabled_plugins = ["io.containerd.nri.v1.nri"]

[plugins.'io.containerd.internal.v1.opt']
  path = "/var/lib/containerd/opt"

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause}"

[plugins.'io.containerd.cri.v1.runtime']
  # Roots of test machines often lack CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "{folder}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
"""


class Node:
    """A node that a test may crash and boot."""

    def __init__(self, name: str, number: int, folder: Path, record: Record) -> None:
        self.name = name
        self.address = node_address(number)
        self.folder = folder
        self._number = number
        self._record = record
        self._cgroup = f"rekindle-{name}"
        self._environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def kmsg(self) -> Path:
        """File that the node sees as /dev/kmsg. Lines that are appended count as lines of the node's
        kernel."""
        return self.folder / "kmsg"

    @property
    def gpus(self) -> Path:
        """File with the ids of the node's healthy GPUs, one per line. The device plugin reads it every
        second."""
        return self.folder / "gpus"

    @property
    def reboot_asked(self) -> Path:
        """File that exists, with the arguments, once something on the node has called systemctl, for example
        for `reboot`."""
        return self.folder / "reboot-asked"

    @property
    def boot_id(self) -> str:
        return (self.folder / "boot_id").read_text(encoding="utf-8").strip()

    def lay(self, plane: ControlPlane, programs: Programs, gpus: int, neighbours: list[int]) -> None:
        """Writes all files that the node's programs read. Must be called before the first start."""
        for name in ("cni", "logs", "sbin", "stopped", "var-log", "var-lib/kubelet", "var-lib/containerd"):
            (self.folder / name).mkdir(parents=True)
        for name in ("kmsg", "boot_id"):
            (self.folder / name).touch()
        ids = (f"{gpu_id(self.name, index)}\n" for index in range(gpus))
        self.gpus.write_text("".join(ids), encoding="utf-8")
        lay_driver(self.folder, self.name, gpus)
        lay_sysfs(self.folder)
        systemctl = self.folder / "sbin" / "systemctl"
        systemctl.write_text(_SYSTEMCTL.format(asked=self.reboot_asked), encoding="utf-8")
        systemctl.chmod(0o755)
        user = f"system:node:{self.name}"
        kubeconfig = client_kubeconfig(plane.folder, plane.url, self.name, user, "system:nodes")
        kubeconfig.rename(self.folder / "kubelet.kubeconfig")
        issue(plane.folder, f"{self.name}-serving", user, group="system:nodes", addresses=(self.address,))
        self._lay_configuration(plane)
        routes = [f"{pods_of(n)} via {node_address(n)}" for n in neighbours if n != self._number]
        folders = {str(path.parent) for path in programs.files.values()}
        self._environment = {
            "NODE": self.name,
            "FOLDER": str(self.folder),
            "ADDRESS": self.address,
            "GATEWAY": GATEWAY,
            "PORT": plane.url.rpartition(":")[2],
            "ROUTES": ";".join([*routes, f"{SERVICES} via {GATEWAY}"]),
            "IMAGES": " ".join(str(path) for path in sorted(self.folder.parent.glob("images/*.tar"))),
            "PATH": ":".join([*sorted(folders), "/usr/sbin:/usr/bin:/sbin:/bin"]),
        }

    def _lay_configuration(self, plane: ControlPlane) -> None:
        containerd = _CONTAINERD.format(pause=PAUSE, plugins=CNI_PLUGINS, folder=self.folder)
        (self.folder / "containerd.toml").write_text(containerd, encoding="utf-8")
        for name, document in (
            ("cni/cluster.conflist", _cni(self._number)),
            ("kubelet.yaml", self._kubelet(plane)),
            ("kube-proxy.yaml", _kube_proxy(plane, self.name)),
        ):
            text = msgspec.json.encode(document) if "cni" in name else yaml.safe_dump(document).encode()
            (self.folder / name).write_bytes(text)

    def _kubelet(self, plane: ControlPlane) -> dict[str, object]:
        serving = plane.folder / f"{self.name}-serving"
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(plane.ca_file)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": f"{serving}.crt",
            "tlsPrivateKeyFile": f"{serving}.key",
            "clusterDNS": [DNS],
            "clusterDomain": "cluster.local",
            "resolvConf": "/dev/null",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "cgroupsPerQOS": True,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "featureGates": {"KubeletInUserNamespace": True},
            "localStorageCapacityIsolation": False,
            "nodeLeaseDurationSeconds": SILENCE_S,
            "nodeStatusUpdateFrequency": "2s",
            "nodeStatusReportFrequency": "10s",
            "syncFrequency": "10s",
        }

    def start(self) -> None:
        """Boots the node, which is Ready some seconds later."""
        assert self._process is None, f"{self.name} runs already"
        self.restart_programs()
        self._make_cgroups()
        namespaces = ["--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        parent = os.getpid()
        with (self.folder / "logs" / "init.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", *namespaces, "bash", str(INIT)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
                preexec_fn=lambda: _prepare(parent),  # noqa: PLW1509  (this process has no threads yet)
            )
        self._record.note_process(self.name, self._process.pid)
        connect(self._record, self._number, self._init_pid())

    def crash(self) -> None:
        """Ends the node like a power failure: SIGKILL of its pid 1. The cable is cut first, because the
        kernel, which lives on, would close the connections of the dead node. Returns when nothing of the node
        runs: its disk and its cgroups are left."""
        cut(self._number)
        self.end()

    def simulated_reboot(self) -> None:
        """Imitates a reboot as it looks from outside: everything that ran has ended, and the next boot has
        another id."""
        self.reboot_asked.unlink(missing_ok=True)
        self.crash()
        self.start()

    def end(self) -> None:
        """Ends the node. Returns when nothing of the node runs any more, at once if nothing did."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, ClusterError):  # it has just ended by itself
            os.kill(self._init_pid(), signal.SIGKILL)
        self._process.wait(CRASHED_S)
        self._process = None

    def kill_programs(self, *names: str) -> None:
        """Sends SIGKILL to the kubelet, containerd or kube-proxy. Nothing starts them again before
        restart_programs. Containers keep running: only a crash of the node ends them."""
        for name in names:
            (self.folder / "stopped" / name).touch()
            with contextlib.suppress(ClusterError):  # the program is between an end and a start
                self.command("kill", "-KILL", *self.command("pgrep", "--exact", name).split())

    def restart_programs(self) -> None:
        """Starts all killed programs again, within a second."""
        for stopped in (self.folder / "stopped").iterdir():
            stopped.unlink()

    def command(self, *command: str) -> str:
        """Returns what that command prints on the node. Raises ClusterError."""
        return run("nsenter", "-t", str(self._init_pid()), "-m", "-p", "-u", "-i", "-n", *command)

    def _init_pid(self) -> int:
        """Returns the pid of the node's init as the machine sees it, even if another process keeps the node.
        Raises ClusterError if the node does not run."""
        parent = self._record.process(self.name)
        while parent is not None and parent.alive:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
                if found := children.read_text(encoding="utf-8").split():
                    return int(found[0])
            time.sleep(0.01)
        raise ClusterError(f"{self.name} does not run; its last words are in {self.folder / 'logs'}")

    def _make_cgroups(self) -> None:
        """Creates empty cgroups: the kubelet needs seconds to remove what an earlier boot has left."""
        remove_cgroup(self._cgroup)
        self._record.note_cgroup(self._cgroup)
        for hierarchy in cgroup_hierarchies():
            ours = hierarchy / self._cgroup
            ours.mkdir()
            for name in ("cpuset.cpus", "cpuset.mems"):  # cgroup version 1: empty until they are filled
                if (ours / name).exists() and (hierarchy / name).exists():
                    (ours / name).write_text((hierarchy / name).read_text())


def _prepare(parent: int) -> None:
    """Prepares the child. The node's pods would inherit the signals that this process blocks, and would not
    get SIGTERM."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    die_with(parent)


def _cni(number: int) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "dataDir": "/run/cni-addresses",
        "ranges": [[{"subnet": pods_of(number)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {
        "cniVersion": "1.0.0",
        "name": "cluster",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": addresses}, ports],
    }


def _kube_proxy(plane: ControlPlane, node: str) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(plane.folder / "kube-proxy.kubeconfig")},
        "hostnameOverride": node,
        "mode": "iptables",
        # The setting belongs to the whole machine, and cannot be set from a node.
        "conntrack": {"maxPerCore": 0},
    }
