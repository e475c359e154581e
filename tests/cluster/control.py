"""The control plane of a cluster with real nodes. tests.control_plane.plane starts it in the same way, but
here it listens on the bridge's address, and its authority also issues the certificates of the nodes. CoreDNS
runs beside it."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path

import msgspec

from tests.cluster.network import DNS, GATEWAY, SERVICES
from tests.cluster.node import SILENCE_S
from tests.cluster.pki import client_kubeconfig, issue, make_authority
from tests.control_plane.build import Programs
from tests.control_plane.plane import ControlPlane, lay_users_and_audit, run_etcd

__all__ = ["ClusterPlane", "lay_authority", "start_control_plane", "start_dns"]

PORT = 6443
DNS_PORT = 10053
_FIRST_SERVICE = "10.96.0.1"
"""Address of the Service `kubernetes`, by which pods reach the API server."""
_COREFILE = """
.:{port} {{
    bind {address}
    errors
    kubernetes cluster.local in-addr.arpa {{
        endpoint {server}
        kubeconfig {kubeconfig}
        pods insecure
        ttl 1
    }}
}}
"""


class ClusterPlane(ControlPlane):
    """A control plane that pods, and perhaps the machine's neighbours, can reach, so its tokens cannot be
    guessed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, PORT, GATEWAY)

    def token(self, user: str) -> str:
        return f"{user}-{(self.folder / 'secret').read_text(encoding='utf-8')}"


def lay_authority(plane: ControlPlane) -> None:
    """Writes all certificates except the kubelets' own, and the users' tokens."""
    secret = plane.folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(16), encoding="utf-8")
    make_authority(plane.folder)
    issue(plane.folder, "server", "kube-apiserver", addresses=(GATEWAY, "127.0.0.1", _FIRST_SERVICE))
    issue(plane.folder, "kubelet-client", "kube-apiserver", group="system:masters")
    client_kubeconfig(plane.folder, plane.url, "kube-proxy", "system:kube-proxy")
    lay_users_and_audit(plane)


def start_control_plane(stack: ExitStack, programs: Programs, plane: ControlPlane) -> None:
    """Starts etcd, the API server and the controllers. Raises PlaneError if the API server does not become
    ready."""
    plane.etcd_url = run_etcd(stack, programs, plane)
    plane.run(stack, _api_server(programs, plane))
    plane.wait_until_ready()
    for command in _controllers(programs, plane):
        plane.run(stack, command)


def start_dns(stack: ExitStack, programs: Programs, plane: ControlPlane) -> None:
    """Starts CoreDNS as a process, behind the Service whose address every kubelet gives to its pods."""
    kubeconfig = plane.kubeconfig()
    text = _COREFILE.format(port=DNS_PORT, address=GATEWAY, server=plane.url, kubeconfig=kubeconfig)
    (plane.folder / "Corefile").write_text(text, encoding="utf-8")
    plane.run(stack, [programs.path("coredns"), "-conf", str(plane.folder / "Corefile")])
    ports = [("dns", "UDP"), ("dns-tcp", "TCP")]
    service = {
        "metadata": {"name": "kube-dns"},
        "spec": {
            "clusterIP": DNS,
            "ports": [
                {"name": name, "protocol": protocol, "port": 53, "targetPort": DNS_PORT}
                for name, protocol in ports
            ],
        },
    }
    endpoints = {
        "metadata": {"name": "kube-dns", "labels": {"kubernetes.io/service-name": "kube-dns"}},
        "addressType": "IPv4",
        "ports": [{"name": name, "protocol": protocol, "port": DNS_PORT} for name, protocol in ports],
        "endpoints": [{"addresses": [GATEWAY], "conditions": {"ready": True}}],
    }
    plane.post("/api/v1/namespaces/kube-system/services", msgspec.json.encode(service))
    slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
    plane.post(slices, msgspec.json.encode(endpoints))


def _api_server(programs: Programs, plane: ControlPlane) -> list[str]:
    folder = plane.folder
    return [
        programs.path("kube-apiserver"),
        f"--etcd-servers={plane.etcd_url}",
        f"--bind-address={GATEWAY}",
        f"--advertise-address={GATEWAY}",
        f"--secure-port={PORT}",
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--client-ca-file={plane.ca_file}",
        f"--kubelet-client-certificate={folder / 'kubelet-client.crt'}",
        f"--kubelet-client-key={folder / 'kubelet-client.key'}",
        f"--kubelet-certificate-authority={plane.ca_file}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--token-auth-file={folder / 'tokens.csv'}",
        f"--service-account-key-file={plane.ca_file}",
        f"--service-account-signing-key-file={folder / 'tls.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--audit-policy-file={folder / 'audit-policy.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
    ]


def _controllers(programs: Programs, plane: ControlPlane) -> list[list[str]]:
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
            # The controller-manager creates this folder, which is by default a folder of the machine.
            f"--flex-volume-plugin-dir={plane.folder / 'volume-plugins'}",
            "--node-monitor-period=1s",
            f"--node-monitor-grace-period={SILENCE_S}s",
        ],
        [programs.path("kube-scheduler"), kubeconfig, "--leader-elect=false", "--secure-port=0"],
    ]
