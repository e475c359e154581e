"""A kubelet as the agent sees it: a gRPC server of PodResources v1 on a unix socket under a host root.

Its answers are assembled byte by byte according to the kubelet's api.proto, not by the code that reads them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

__all__ = ["REAL_ANSWER", "SOCKET", "Kubelet", "answer", "kubelet", "pod"]

SOCKET = "var/lib/kubelet/pod-resources/kubelet.sock"

REAL_ANSWER = bytes.fromhex(
    "0a600a056c6c6d2d3012026d6c1a530a05747261696e12240a0e6e76696469612e636f6d2f67707512054750552d31"
    "12054750552d321a040a0208011a020102220a0a066d656d6f727910052a1412036e69631a026d6c22091201641a01"
    "7022016e0a150a03776562120764656661756c741a050a03776562"
)
"""An answer made by protoc's classes of Kubernetes 1.36's api.proto: the pod ml/llm-0 with GPU-1 and GPU-2
(and topology, CPUs, memory, a resource claim), and default/web without devices."""


def answer(*pods: bytes) -> bytes:
    return b"".join(_field(1, one) for one in pods)


def pod(
    name: str,
    *ids: str,
    namespace: str = "ml",
    resource: str = "nvidia.com/gpu",
    claimed: Iterable[tuple[str, str]] = (),
) -> bytes:
    """Returns the bytes of a pod. `claimed` has driver and name of each device of the pod's one resource
    claim."""
    devices = _field(1, resource.encode()) + b"".join(_field(2, id_.encode()) for id_ in ids)
    container = _field(1, b"main") + (_field(2, devices) if ids else b"")
    drawn = b"".join(
        _field(4, _field(2, driver.encode()) + _field(3, b"n0") + _field(4, device.encode()))
        for driver, device in claimed
    )
    if drawn:
        container += _field(5, _field(2, b"claim") + _field(3, namespace.encode()) + drawn)
    return _field(1, name.encode()) + _field(2, namespace.encode()) + _field(3, container)


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


class Kubelet:
    def __init__(self) -> None:
        self.answer = b""
        self.calls = 0
        self.knows_v1 = True
        self.goes_on = threading.Event()
        """Event that lets the kubelet answer. While it is not set, the kubelet hangs."""
        self.goes_on.set()

    def list(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls += 1
        if not self.knows_v1:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown service v1.PodResourcesLister")
        self.goes_on.wait(60)
        return self.answer


@contextmanager
def kubelet(host_root: Path) -> Iterator[Kubelet]:
    played = Kubelet()
    socket = host_root / SOCKET
    socket.parent.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        calls = {"List": grpc.unary_unary_rpc_method_handler(played.list)}
        service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", calls)
        server = grpc.server(pool, handlers=[service])
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield played
        finally:
            played.goes_on.set()
            server.stop(None).wait(5)
            socket.unlink(missing_ok=True)
