"""ConfigMaps cf-crl-* name further accelerator resources. The controller reports a bad ConfigMap, and the
others still count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from detectors.client.kubeapi import ApiError, ReplyLost
from recover.kube.cluster import ListPage
from recover.model.limitations import device_resource
from recover.policy.settings import Settings
from recover.runtime.resource_names import with_resource_names
from tests.recover.scripted import Scripted

ON = Settings(accelerators=("nvidia.com/gpu",), accelerator_maps=True)


def limitation(key: str, *, name: str = "cf-crl-npu-chip", enabled: str = "true", **data: str) -> bytes:
    labels = {
        "features.alauda.io/type": "CustomResourceLimitation",
        "features.alauda.io/group": "npu",
        "features.alauda.io/enabled": enabled,
    }
    told = {"key": key, "dataType": "integer", "defaultValue": "1", "group": "npu", **data}
    return msgspec.json.encode({"metadata": {"name": name, "labels": labels}, "data": told})


def page(*items: bytes, more: str = "") -> ListPage:
    return ListPage([msgspec.Raw(item) for item in items], "9", more)


@pytest.mark.parametrize(
    ("raw", "resource"),
    [
        (limitation("example.com/npu", limits="required", requests="fromLimits"), "example.com/npu"),
        (limitation("nvidia.com/gpualloc", limits="optional", requests="disabled"), "nvidia.com/gpualloc"),
        (limitation("example.com/npu", enabled="false"), ""),
        (limitation("example.com/npu", limits="disabled"), ""),
        (limitation("example.com/npu", name="other"), ""),
        (limitation("nvidia.com/gpumem"), ""),
        (limitation("nvidia.com/gpumem-percentage"), ""),
        (limitation("tencent.com/vcuda-memory"), ""),
        (limitation("iluvatar.ai/BI-V150.vCore"), ""),
    ],
)
def test_a_key_that_counts_devices_is_an_accelerator_and_no_other(raw: bytes, resource: str) -> None:
    assert device_resource(raw) == resource


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (limitation(""), r"cf-crl-npu-chip: data\.key: '': expected a resource such as"),
        (limitation("cpu"), r"data\.key: 'cpu'"),
        (limitation("a b/c"), r"data\.key"),
        (limitation("node.kubernetes.io/x"), r"data\.key"),
        (limitation("example.com/" + "x" * 64), r"data\.key"),
        (limitation("example.com/npu", limits="maybe"), r"data\.limits: 'maybe': expected one of disabled"),
        (limitation("example.com/npu", requests=""), r"data\.requests: ''"),
        (b'{"metadata":{"name":"cf-crl-x"},"data":3}', "data"),
    ],
)
def test_a_malformed_one_is_refused_by_field_and_value(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        device_resource(raw)


async def test_what_is_bad_is_reported_and_the_rest_of_all_pages_counts() -> None:
    pages = [
        page(limitation("a.example/npu"), limitation("cpu"), more="2"),
        page(limitation("b.example/npu")),
    ]

    with capture_logs() as logs:
        found = await with_resource_names(Scripted(list=pages), ON)

    assert found.accelerators == ("nvidia.com/gpu", "a.example/npu", "b.example/npu")
    assert [log["event"] for log in logs] == ["accelerator resource skipped", "further accelerator resources"]


async def test_off_nothing_is_asked() -> None:
    cluster = Scripted()
    settings = Settings()

    assert await with_resource_names(cluster, settings) is settings
    assert cluster.calls == []


@pytest.mark.parametrize(
    ("answers", "asked", "names"),
    [
        ([ApiError(403, "Forbidden", "you may not")], 1, 0),
        ([ReplyLost("gone"), ApiError(503, "", "later"), page(limitation("a.example/npu"))], 3, 1),
        ([ReplyLost("gone")] * 4, 3, 0),
    ],
)
async def test_an_api_server_that_fails_is_asked_again_and_never_holds_the_controller_up(
    answers: list[Any], asked: int, names: int
) -> None:
    cluster = Scripted(list=answers)

    found = await with_resource_names(cluster, ON, between_s=0.0)

    assert len(cluster.calls) == asked
    assert len(found.accelerators) == 1 + names


async def test_more_names_than_a_platform_has_are_not_taken() -> None:
    many = page(*(limitation(f"example.com/npu-{number}") for number in range(200)))

    assert len((await with_resource_names(Scripted(list=[many]), ON)).accelerators) == 65
