"""Tests which pods are not decoded: only those that the controller would not keep anyway."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recover.model import decode
from recover.model.pod_glance import is_beside_the_gangs
from recover.policy.settings import Settings

ACCELERATORS = Settings().accelerators
KINDS, OURS = frozenset({"PyTorchJob", "JobSet"}), "rekindle-system"


def is_beside(body: dict[str, Any]) -> bool:
    return is_beside_the_gangs(msgspec.json.encode(body), ACCELERATORS, KINDS, OURS)


def pod(
    *,
    namespace: str = "web",
    labels: dict[str, str] | None = None,
    owner: str = "ReplicaSet",
    limits: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    metadata = {
        "name": "p",
        "namespace": namespace,
        "uid": "u",
        "resourceVersion": "1",
        "labels": labels or {},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": owner, "name": "o", "uid": "o-uid", "controller": True}
        ],
    }
    container = {"name": "c", "resources": {"limits": limits or {"cpu": "1"}}}
    return {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": {}}


GPU = {"nvidia.com/gpu": "1"}


def test_a_web_server_is_beside_the_gangs() -> None:
    assert is_beside(pod())
    assert is_beside({"metadata": {"name": "p", "namespace": "web"}})


@pytest.mark.parametrize(
    "kept",
    [
        pod(namespace=OURS),
        pod(labels={"rekindle.dev/scan-of": "r"}),
        pod(labels={decode.JOBSET_UID: "s"}),
        pod(owner="PyTorchJob"),
        pod(limits=GPU),
        pod(limits={"nvidia.com/mig-1g.5gb": "1"}),
        pod(resourceClaims=[{"name": "gpu"}]),
        pod(initContainers=[{"name": "i", "resources": {"requests": GPU}}]),
    ],
    ids=["ours", "scan", "of a JobSet", "of a gang", "GPU", "MIG", "claim", "init container"],
)
def test_whatever_may_matter_is_decoded(kept: dict[str, Any]) -> None:
    assert not is_beside(kept)


NAMES = st.sampled_from(["cpu", "memory", *ACCELERATORS[:3], "nvidia.com/mig-2g.10gb", "example.com/x"])
QUANTITIES = st.dictionaries(NAMES, st.sampled_from(["0", "1", "100m"]), max_size=3)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.just("c"),
            "resources": st.fixed_dictionaries({"limits": QUANTITIES, "requests": QUANTITIES}),
        }
    ),
    max_size=2,
)


@given(containers=CONTAINERS, first=CONTAINERS, claims=st.lists(st.just({"name": "x"}), max_size=1))
def test_what_holds_a_device_is_never_left_out(containers: Any, first: Any, claims: Any) -> None:
    body = pod(initContainers=first, resourceClaims=claims)
    body["spec"]["containers"] = containers
    whole = decode.pod(msgspec.json.encode(body), ACCELERATORS)
    assert not (is_beside(body) and whole.may_hold_devices)
