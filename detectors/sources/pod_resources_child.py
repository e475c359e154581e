"""Asks the kubelet which pod was given which devices, prints the answer as JSON and ends. pod_resources.py
runs this module as a separate process: grpc would permanently add 12 MiB to the agent, and is needed only for
moments.

The call is PodResources v1, List: gRPC on a unix socket. The messages are declared here with protobuf's own
descriptors, as far as they are read. Source: kubernetes/kubelet, pkg/apis/podresources/v1/api.proto (1.36).
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from detectors.commands.extras import install
from detectors.folds.holders import Claimed, Given

__all__ = ["METHOD", "ListReply", "main"]

METHOD = "/v1.PodResourcesLister/List"

_ANSWER_BYTES_MAX = 16 * 1024 * 1024
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.default_authority", "localhost"),  # Go's server refuses a path as the authority
    ("grpc.max_receive_message_length", _ANSWER_BYTES_MAX),
)
_TEXT, _TEXTS = "text", "texts"
_MESSAGES = {
    # message -> (field, number, type): text, or a list of texts or of a message
    "Answer": (("pods", 1, "Pod"),),
    "Pod": (("name", 1, _TEXT), ("namespace", 2, _TEXT), ("containers", 3, "Container")),
    "Container": (("devices", 2, "Devices"), ("claims", 5, "Claim")),
    "Devices": (("resource", 1, _TEXT), ("ids", 2, _TEXTS)),
    "Claim": (("name", 2, _TEXT), ("resources", 4, "ClaimResource")),
    "ClaimResource": (("driver", 2, _TEXT), ("device", 4, _TEXT)),
}


class ListReply(msgspec.Struct, frozen=True):
    """The printed answer: the pods that were given devices, or the error."""

    error: str = ""
    pods: tuple[Given, ...] = ()


def main() -> int:
    socket, deadline_s = sys.argv[1:]
    sys.stdout.buffer.write(msgspec.json.encode(_ask(socket, float(deadline_s))))
    return 0


def _ask(socket: str, deadline_s: float) -> ListReply:
    try:
        import grpc  # noqa: PLC0415  only here: the packages are optional
        from google.protobuf.message import DecodeError  # noqa: PLC0415
    except ImportError as error:
        return ListReply(
            error=f"grpcio or protobuf is not installed: {error}; {install('agent')} brings them"
        )
    with grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        call = channel.unary_unary(METHOD)
        try:
            answer = call(b"", timeout=deadline_s)
        except grpc.RpcError as error:
            return ListReply(error=_why(grpc, error, socket, deadline_s))
    try:
        return ListReply(pods=tuple(filter(_has_any, map(_given, _parsed(answer).pods))))
    except DecodeError as error:
        return ListReply(error=f"{socket}: the answer is no list of PodResources v1: {error}")


def _why(grpc: Any, error: Any, socket: str, deadline_s: float) -> str:
    code, codes = error.code(), grpc.StatusCode
    if code is codes.DEADLINE_EXCEEDED:
        return f"{socket}: the kubelet gave no answer within {deadline_s:g} s"
    if code is codes.UNIMPLEMENTED:
        return f"{socket}: this kubelet has no PodResources v1; Kubernetes 1.20 and newer do"
    return f"{socket}: {code.name}: {error.details()}"


def _parsed(answer: bytes) -> Any:
    """Parses the answer. Raises `DecodeError`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="answer.proto", package="v1", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, type_ in fields:
            declared = message.field.add(name=field_name, number=number)
            declared.label = field.LABEL_OPTIONAL if type_ == _TEXT else field.LABEL_REPEATED
            if type_ in (_TEXT, _TEXTS):
                declared.type = field.TYPE_STRING
            else:
                declared.type, declared.type_name = field.TYPE_MESSAGE, f".v1.{type_}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("v1.Answer")).FromString(answer)


def _given(pod: Any) -> Given:
    devices: dict[str, list[str]] = {}
    for container in pod.containers:
        for given in container.devices:
            devices.setdefault(given.resource, []).extend(given.ids)
    claims = tuple(
        claimed
        for container in pod.containers
        for claim in container.claims
        for claimed in [Claimed(one.driver, one.device) for one in claim.resources] or [Claimed()]
    )
    return Given(namespace=pod.namespace, name=pod.name, devices=devices, claims=claims)


def _has_any(given: Given) -> bool:
    return bool(given.devices or given.claims)


if __name__ == "__main__":
    sys.exit(main())
