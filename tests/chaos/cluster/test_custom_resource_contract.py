"""The contract of any API server for Rekindle's own kinds: validation, defaults, pruning, an isolated status.
Like the contract tests of the built-in kinds, these tests know only the `Cluster` protocol."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.resource import JsonPatch, Resource
from recover.k8s.kinds import INCIDENTS, NODEHEALTHS, RECOVERIES
from recover.kube.cluster import Cluster

SPEC = {"fault": "device-lost", "node": "n1", "detectedAt": "2026-11-21T10:00:00.123456Z"}
FINDING = {
    "id": "b00tb00t-kmsg-7",
    "code": "xid-79",
    "fault": "device-lost",
    "origin": "kernel",
    "severity": "fatal",
    "subject": {"kind": "device", "pci": "0000:3b:00.0"},
    "bootId": "b00t",
    "firstSeen": "2026-11-21T10:00:00Z",
    "lastSeen": "2026-11-21T10:00:00+00:00",
}


def health(name: str, **parts: Any) -> dict[str, Any]:
    return body(NODEHEALTHS, name, **parts)


def incident(name: str, **parts: Any) -> dict[str, Any]:
    return body(INCIDENTS, name, **parts)


def body(resource: Resource, name: str, **parts: Any) -> dict[str, Any]:
    """Returns a custom resource. It must contain its apiVersion and kind, which built-in kinds may omit."""
    identity = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**identity, "metadata": {"name": name}, **parts}


def read(raw: bytes) -> Any:
    return msgspec.json.decode(raw)


async def refusal(attempt: Any) -> ApiError:
    with pytest.raises(ApiError) as refused:
        await attempt
    return refused.value


async def test_kubectl_is_told_of_our_kinds_their_short_names_and_that_rekindle_means_them_all(
    rest: KubeApi,
) -> None:
    told = read(await rest.request("GET", INCIDENTS.path().rpartition("/")[0]))["resources"]

    ours = {r["name"]: (r["shortNames"], r["categories"]) for r in told if "/" not in r["name"]}
    assert ours == {
        "nodehealths": (["nh"], ["rekindle"]),
        "incidents": (["inc"], ["rekindle"]),
        "recoveries": (["rec"], ["rekindle"]),
        "recipes": (["rcp"], ["rekindle"]),
    }
    (status,) = (r for r in told if r["name"] == "incidents/status")
    assert not status.get("categories")


async def test_a_new_object_has_the_defaults_of_its_status_in_place_of_what_was_sent(
    cluster: Cluster,
) -> None:
    made = read(await cluster.create(INCIDENTS, incident("i", spec=SPEC, status={"phase": "Closed"})))
    assert made["status"] == {"phase": "Open", "blame": "unknown"}
    assert made["spec"] == SPEC


async def test_defaults_inside_a_list_are_filled_in(cluster: Cluster) -> None:
    await cluster.create(NODEHEALTHS, health("n1"))
    answer = read(
        await cluster.patch(NODEHEALTHS, "n1", {"status": {"findings": [FINDING]}}, subresource="status")
    )
    assert answer["status"]["findings"] == [{**FINDING, "remedy": "none", "count": 1}]


async def test_unknown_fields_are_dropped(cluster: Cluster) -> None:
    await cluster.create(NODEHEALTHS, health("n1", spec={"request": "r", "novel": 1}, extra={}))
    change = {"status": {"bootId": "b", "novel": {"a": 1}}}
    answer = read(await cluster.patch(NODEHEALTHS, "n1", change, subresource="status"))
    assert (answer["spec"], answer["status"], "extra" in answer) == ({"request": "r"}, {"bootId": "b"}, False)


async def test_a_patch_of_the_status_changes_neither_spec_nor_labels_nor_finalizers(cluster: Cluster) -> None:
    await cluster.create(NODEHEALTHS, health("n1", spec={"request": "r"}))
    change = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["test/hold"]},
        "spec": {"request": "other"},
        "status": {"bootId": "b"},
    }
    answer = read(await cluster.patch(NODEHEALTHS, "n1", change, subresource="status"))
    assert (answer["spec"], answer["status"]) == ({"request": "r"}, {"bootId": "b"})
    assert not {"labels", "annotations", "finalizers"} & answer["metadata"].keys()
    assert answer["metadata"]["generation"] == 1


async def test_a_patch_of_the_object_leaves_the_status_alone(cluster: Cluster) -> None:
    await cluster.create(NODEHEALTHS, health("n1"))
    change = {"spec": {"request": "r"}, "status": {"bootId": "b"}}
    answer = read(await cluster.patch(NODEHEALTHS, "n1", change))
    assert answer["spec"] == {"request": "r"}
    assert "bootId" not in answer.get("status", {})
    assert answer["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"findings": [{**FINDING, "fault": "made-up"}]}, "status.findings[0].fault"),
        ({"findings": [{**FINDING, "count": 0}]}, "status.findings[0].count"),
        ({"findings": [{**FINDING, "firstSeen": "yesterday"}]}, "status.findings[0].firstSeen"),
        ({"findings": [{**FINDING, "evidence": "x" * 257}]}, "status.findings[0].evidence"),
        ({"findings": [FINDING] * 33}, "status.findings"),
        ({"findings": [{k: v for k, v in FINDING.items() if k != "code"}]}, "status.findings[0].code"),
        ({"bootId": 7}, "status.bootId"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_status_that_does_not_fit_is_refused_with_the_name_of_the_field(
    cluster: Cluster, status: dict[str, Any], field: str
) -> None:
    await cluster.create(NODEHEALTHS, health("n1"))
    error = await refusal(cluster.patch(NODEHEALTHS, "n1", {"status": status}, subresource="status"))
    assert (error.status, error.reason) == (422, "Invalid")
    assert f"{field}:" in error.message


async def test_a_new_object_without_a_required_field_is_refused(cluster: Cluster) -> None:
    spec = {key: value for key, value in SPEC.items() if key != "fault"}
    error = await refusal(cluster.create(INCIDENTS, incident("i", spec=spec)))
    assert (error.status, "spec.fault: Required value" in error.message) == (422, True)
    missing = await refusal(cluster.create(INCIDENTS, incident("i")))
    assert (missing.status, "spec: Required value" in missing.message) == (422, True)


async def test_an_object_of_ours_in_a_missing_namespace_is_not_found(cluster: Cluster) -> None:
    error = await refusal(cluster.create(RECOVERIES, body(RECOVERIES, "r"), "nowhere"))
    assert (error.status, "nowhere" in error.message) == (404, True)


async def test_preconditions_hold_for_a_patch_of_the_status(cluster: Cluster) -> None:
    meta = read(await cluster.create(NODEHEALTHS, health("n1")))["metadata"]
    fresh = {"metadata": {"resourceVersion": meta["resourceVersion"], "uid": meta["uid"]}}
    await cluster.patch(NODEHEALTHS, "n1", {**fresh, "status": {"bootId": "b"}}, subresource="status")

    stale = await refusal(
        cluster.patch(NODEHEALTHS, "n1", {**fresh, "status": {"bootId": "c"}}, subresource="status")
    )

    assert (stale.status, stale.reason, stale.stale) == (409, "Conflict", True)
    assert read(await cluster.get(NODEHEALTHS, "n1"))["status"]["bootId"] == "b"


async def test_a_wrong_uid_is_refused_for_the_object_and_not_seen_for_its_status(cluster: Cluster) -> None:
    """Therefore a status is guarded by a resourceVersion: an API server restores the metadata before it
    compares."""
    await cluster.create(NODEHEALTHS, health("n1"))
    wrong = {"metadata": {"uid": "another"}}

    refused = await refusal(cluster.patch(NODEHEALTHS, "n1", {**wrong, "spec": {"request": "r"}}))
    change = {**wrong, "status": {"bootId": "b"}}
    answer = read(await cluster.patch(NODEHEALTHS, "n1", change, subresource="status"))

    assert (refused.status, refused.stale) == (422, True)
    assert answer["status"]["bootId"] == "b"


async def test_a_custom_resource_must_say_what_it_is(cluster: Cluster) -> None:
    for missing in ("apiVersion", "kind"):
        unsaid = {key: value for key, value in health("n1").items() if key != missing}
        assert (await refusal(cluster.create(NODEHEALTHS, unsaid))).status == 400
    assert (await refusal(cluster.create(NODEHEALTHS, incident("n1", spec=SPEC)))).status == 422


async def test_a_null_takes_a_field_off_and_an_empty_patch_writes_nothing(cluster: Cluster) -> None:
    await cluster.create(NODEHEALTHS, health("n1"))
    change = {"status": {"bootId": "b", "agentVersion": "1"}}
    await cluster.patch(NODEHEALTHS, "n1", change, subresource="status")
    before = read(
        await cluster.patch(NODEHEALTHS, "n1", {"status": {"agentVersion": None}}, subresource="status")
    )
    after = read(await cluster.patch(NODEHEALTHS, "n1", {}, subresource="status"))
    assert before["status"] == {"bootId": "b"}
    assert before == after


async def test_a_json_patch_of_the_status_is_tested_first(cluster: Cluster) -> None:
    await cluster.create(NODEHEALTHS, health("n1"))
    await cluster.patch(NODEHEALTHS, "n1", {"status": {"bootId": "b"}}, subresource="status")
    change = {"op": "replace", "path": "/status/bootId", "value": "c"}
    for held, expected in (("other", None), ("b", "c")):
        tested = [{"op": "test", "path": "/status/bootId", "value": held}, change]
        attempt = cluster.patch(NODEHEALTHS, "n1", tested, subresource="status", patch_type=JsonPatch)
        if expected is None:
            assert (await refusal(attempt)).status == 422
        else:
            assert read(await attempt)["status"]["bootId"] == expected


async def test_the_times_of_our_objects_come_back_as_they_were_sent(cluster: Cluster) -> None:
    """The executor detects changes by comparing the object that it wants with the object that it reads."""
    for number, at in enumerate(
        ("2026-11-21T10:00:00Z", "2026-11-21T10:00:00.5Z", "2026-11-21T10:00:00+01:00")
    ):
        made = read(await cluster.create(INCIDENTS, incident(f"i{number}", spec={**SPEC, "detectedAt": at})))
        assert made["spec"]["detectedAt"] == at
