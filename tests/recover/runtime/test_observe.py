"""Tests caches and indexes: own writes against late watch events, lists, deletions, objects that cannot be
read."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from chaos.apiserver.client import Client
from chaos.apiserver.store import MemoryCluster
from detectors.wire.resource import Resource
from recover.api.marks import SCAN_OF
from recover.k8s.kinds import INCIDENTS, JOBS, NAMESPACES, NODEHEALTHS, NODES, PODS, RECOVERIES
from recover.kube.cluster import ListPage
from recover.model import DEPARTED_MAX, World
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.runtime.cache import Cache
from recover.runtime.observe import Observer
from tests.recover.scripted import Scripted, event, raw

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
JOBSET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "name": "s",
    "uid": "s-uid",
    "controller": True,
}
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "llm", "uid": "job-uid", "controller": True}
GPU = {"containers": [{"name": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}


META = {"name": "llm-master-0", "namespace": "ml", "uid": "u0", "resourceVersion": "5"}


class Text(msgspec.Struct):
    text: str


class Kept(msgspec.Struct):
    spec: Text


def cache() -> tuple[Cache[str], list[tuple[str, str | None, str | None]]]:
    """Returns a cache of texts, and the list of its differences."""
    changes: list[tuple[str, str | None, str | None]] = []
    made: Cache[str] = Cache(PODS, text_of, lambda *change: changes.append(change))
    return made, changes


def text_of(raw_object: bytes) -> str:
    return msgspec.json.decode(raw_object, type=Kept).spec.text


def relist(rows: Cache[str], items: list[bytes], version: str) -> None:
    rows.begin()
    for listed in items:
        rows.listed(msgspec.Raw(listed))
    rows.finish(version)


def item(name: str, version: int, text: Any = "a") -> bytes:
    return raw(name, version, spec={"text": text})


def test_a_late_watch_event_does_not_undo_what_our_own_write_has_told() -> None:
    rows, changes = cache()
    rows.absorb(item("x", 9, "written"))
    rows.apply(event("MODIFIED", "x", 8, spec={"text": "before"}))

    assert rows.rows == {"ml/x": "written"}
    assert changes == [("ml/x", None, "written")]


def test_a_deleted_object_does_not_come_back_with_a_late_answer() -> None:
    rows, changes = cache()
    rows.absorb(item("x", 5))
    rows.apply(event("DELETED", "x", 7))
    rows.absorb(item("x", 6))

    assert rows.rows == {}
    assert changes[-1] == ("ml/x", "a", None)

    rows.absorb(item("x", 8, "made anew"))
    assert rows.rows == {"ml/x": "made anew"}


def test_a_deletion_older_than_what_is_known_takes_nothing_away() -> None:
    """A read may overtake the watch: the object was deleted, and another object of its name was created."""
    rows, changes = cache()
    rows.absorb(item("x", 3, "old"))
    rows.absorb(item("x", 9, "new"))
    rows.apply(event("DELETED", "x", 7))

    assert rows.rows == {"ml/x": "new"}
    assert changes[-1] == ("ml/x", "old", "new")

    rows.apply(event("DELETED", "x", 10))
    assert rows.rows == {}


def test_a_new_list_tells_only_of_differences_and_keeps_what_is_newer_than_itself() -> None:
    rows, changes = cache()
    for name, version in (("same", 3), ("gone", 4), ("new", 12)):
        rows.absorb(item(name, version))
    changes.clear()

    relist(rows, [item("same", 3), item("other", 6)], "10")

    assert sorted(rows.rows) == ["ml/new", "ml/other", "ml/same"]
    assert sorted(changes) == [("ml/gone", "a", None), ("ml/other", None, "a")]


def test_what_we_write_while_a_list_is_read_is_judged_by_that_list() -> None:
    rows, _ = cache()
    rows.begin()
    rows.absorb(item("gone before the list was taken", 5))
    rows.absorb(item("made after it", 12))
    rows.finish("10")

    assert sorted(rows.rows) == ["ml/made after it"]


def test_a_list_that_broke_off_tells_nothing() -> None:
    rows, _ = cache()
    rows.absorb(item("a", 1))
    rows.absorb(item("b", 2))
    rows.begin()
    rows.listed(msgspec.Raw(item("a", 1)))

    relist(rows, [item("b", 2)], "10")

    assert sorted(rows.rows) == ["ml/b"]


@pytest.mark.parametrize(
    "broken",
    [
        item("bad", 5, 7),
        raw("bad", 5),
        b'{"metadata":{"name":"bad","namespace":"ml","resourceVersion":"5","labels":null},"spec":{}}',
        b'{"metadata":{"name":"bad","namespace":"ml","resourceVersion":"new"},"spec":{"text":"a"}}',
        b'{"kind":"Pod"}',
    ],
    ids=["wrong type", "field missing", "null labels", "strange version", "no metadata"],
)
def test_one_object_that_cannot_be_read_is_reported_and_the_others_are_there(broken: bytes) -> None:
    rows, _ = cache()

    relist(rows, [broken, item("good", 6)], "10")
    rows.apply(event("MODIFIED", "good", 11, spec={"text": "b"}))

    assert rows.rows == {"ml/good": "b"}
    assert len(rows.unreadable) == 1


def test_an_object_without_a_name_counts_as_unreadable_until_a_list_lacks_it() -> None:
    rows, _ = cache()
    relist(rows, [b'{"kind":"Pod"}', item("good", 6)], "10")
    assert len(rows.unreadable) == 1

    relist(rows, [item("good", 6)], "12")

    assert rows.unreadable == {}


@pytest.mark.parametrize("resources", [None, {"limits": None}, {"limits": 3}, [], "8"])
def test_a_job_whose_template_is_not_what_it_should_be_ends_no_watch(resources: object) -> None:
    """The API server refuses all of these. If one came nevertheless and ended the watch, the controller
    would not see the other jobs."""
    made = observer()
    spec = {"template": {"spec": {"containers": [{"name": "train", "resources": resources}]}}}

    made.absorb(JOBS, raw("odd", 1, spec=spec))
    made.absorb(JOBS, raw("good", 2, spec={"template": {"spec": GPU}}))

    assert [gang.ref.name for gang in seen(made).gangs.values()] == ["good"]


def test_who_makes_an_object_unreadable_again_and_again_fills_no_log() -> None:
    """For 110 s, the object changes ten times a second between a wrong type, null, and a good value."""
    seconds = iter(number / 10 for number in range(10_000))
    rows: Cache[str] = Cache(PODS, text_of, lambda *_: None, clock=lambda: next(seconds))

    with capture_logs() as lines:
        for version in range(1, 1650):
            rows.absorb(item("x", version, (7, None, "good")[version % 3]))

    assert [line["object"] for line in lines] == ["ml/x", "ml/x"]
    assert lines[1]["not_told_before"] > 500


def test_a_reason_that_came_too_soon_for_the_log_is_told_a_minute_later() -> None:
    seconds = iter((0.0, 1.0, 61.0, 62.0))
    rows: Cache[str] = Cache(PODS, text_of, lambda *_: None, clock=lambda: next(seconds))

    with capture_logs() as lines:
        for version, text in enumerate((7, None, None, None)):
            rows.absorb(item("x", version + 1, text))

    assert len(lines) == 2
    assert lines[0]["error"] != lines[1]["error"]


def test_an_object_that_has_become_unreadable_is_no_longer_believed_until_it_is_mended() -> None:
    rows, changes = cache()
    rows.absorb(item("x", 1))
    rows.absorb(item("x", 2, None))
    assert rows.rows == {}
    assert changes[-1] == ("ml/x", "a", None)

    rows.absorb(item("x", 3, "mended"))
    assert (rows.rows, rows.unreadable) == ({"ml/x": "mended"}, {})


# --- indexes ----------------------------------------------------------------------------------------------


def pod(
    name: str, version: int, *, node: str = "", owner: dict[str, Any] | None = OWNER, **meta: Any
) -> bytes:
    metadata = {
        "name": name,
        "namespace": "ml",
        "uid": f"{name}-uid",
        "resourceVersion": str(version),
        "ownerReferences": [owner] if owner else [],
        **meta,
    }
    return msgspec.json.encode({"metadata": metadata, "spec": {**GPU, "nodeName": node}, "status": {}})


def observer() -> Observer:
    return Observer(Scripted(), Settings(), lambda: None)


def seen(made: Observer) -> World:
    return made.world(Modes(begun(Mode.OBSERVE, NOW)))


def put(made: Observer, *objects: tuple[Resource, bytes]) -> World:
    for resource, found in objects:
        made.absorb(resource, found)
    return seen(made)


def test_the_place_of_a_gang_follows_its_pods() -> None:
    made = observer()
    put(made, (PODS, pod("a", 1)), (PODS, pod("b", 2, node="n2")))
    assert seen(made).gangs_on == {"n2": {"job-uid"}}

    put(made, (PODS, pod("a", 3, node="n1")))
    assert seen(made).gangs_on == {"n1": {"job-uid"}, "n2": {"job-uid"}}

    made.pods.apply(event("DELETED", "b", 4))
    made.pods.apply(event("DELETED", "a", 5))
    assert (seen(made).gangs_on, seen(made).pods_of) == ({}, {})


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from(["", "n1", "n2"]), st.sampled_from(["u1", "u2", None])
        ),
        max_size=30,
    )
)
def test_the_places_of_gangs_are_those_of_their_pods_after_every_change(
    changes: list[tuple[str, str, str | None]],
) -> None:
    made = observer()
    for version, (name, node, uid) in enumerate(changes, 1):
        if uid is None:
            made.pods.apply(event("DELETED", name, version))
        else:
            put(made, (PODS, pod(name, version, node=node, uid=f"{name}-{uid}")))
        world = seen(made)

        bound = {(p.node, uid) for uid, pods in world.pods_of.items() for p in pods.values() if p.node}
        assert {(node, uid) for node, uids in world.gangs_on.items() for uid in uids} == bound


def test_a_pod_of_which_only_the_version_is_new_wakes_nobody_and_is_kept() -> None:
    looks: list[str] = []
    made = Observer(Scripted(), Settings(), lambda: looks.append("look"))

    put(made, (PODS, pod("a", 1, node="n1")), (PODS, pod("a", 2, node="n1")))
    assert (len(looks), made.pods.rows["ml/a"]) == (
        1,
        msgspec.structs.replace(made.pods.rows["ml/a"], version="2"),
    )

    put(made, (PODS, pod("a", 3, node="n2")))
    assert len(looks) == 2


def test_a_pod_that_is_made_anew_under_its_name_replaces_the_old_one() -> None:
    made = observer()
    world = put(made, (PODS, pod("a", 1, node="n1")), (PODS, pod("a", 2, node="n3", uid="new")))

    assert [p.uid for p in world.pods_of["job-uid"].values()] == ["new"]
    assert set(world.gangs_on) == {"n3"}


def test_a_rank_that_bears_the_label_of_a_scan_stays_a_rank() -> None:
    made = observer()
    scan = {"name": "scan", "namespace": "ml", "uid": "s", "resourceVersion": "2", "labels": {SCAN_OF: "r"}}
    world = put(
        made,
        (PODS, pod("rank", 1, node="n1", labels={SCAN_OF: "r"})),
        (PODS, msgspec.json.encode({"metadata": scan, "spec": {"containers": [{"name": "scan"}]}})),
    )

    assert list(world.scans) == ["ml/scan"]
    assert [p.name for p in world.pods_of["job-uid"].values()] == ["rank"]


def test_a_pod_with_accelerators_counts_as_their_holder_though_it_bears_the_label_of_a_scan() -> None:
    """Otherwise Rekindle would start a gang on devices that are in use, or stop a gang for them."""
    world = put(observer(), (PODS, pod("sitter", 1, node="n1", owner=None, labels={SCAN_OF: "r"})))

    assert world.scans == {}
    (held,) = world.pods_of["sitter-uid"].values()
    assert (held.node, held.requests) == ("n1", (("nvidia.com/gpu", 8),))
    assert world.gangs_on == {"n1": {"sitter-uid"}}


def test_a_job_that_is_made_anew_under_its_name_is_another_gang() -> None:
    made = observer()
    job = {"parallelism": 2, "template": {"spec": GPU}}
    put(made, (JOBS, raw("llm", 1, uid="old", spec=job)), (JOBS, raw("llm", 2, uid="new", spec=job)))

    assert set(seen(made).gangs) == {"new"}


@pytest.mark.parametrize(
    ("meta", "spec", "kept"),
    [
        ({}, {"containers": [{"name": "c"}]}, False),
        ({}, GPU, True),
        ({}, {"containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}]}, True),
        ({"labels": {"rekindle.dev/auto-recovery": "enabled"}}, {}, True),
        ({"annotations": {"rekindle.dev/auto-recovery": "observe"}}, {}, True),
        (
            {"annotations": {"rekindle.dev/recovery": '{"recovery":"r","attempt":1,"did":"stopped"}'}},
            {},
            True,
        ),
        ({"ownerReferences": [JOBSET]}, {}, True),
    ],
    ids=["no device", "a device", "a claim", "a label", "an annotation", "stopped by us", "of a JobSet"],
)
def test_of_all_the_jobs_of_a_cluster_those_are_kept_that_may_be_trainings(
    meta: dict[str, Any], spec: dict[str, Any], kept: bool
) -> None:
    """Each of a hundred thousand other Jobs would take 16 KB, and wake the loops."""
    woken: list[None] = []
    made = Observer(Scripted(), Settings(), lambda: woken.append(None))

    metadata = {"name": "llm", "namespace": "ml", "uid": "job-uid", "resourceVersion": "1", **meta}
    put(made, (JOBS, msgspec.json.encode({"metadata": metadata, "spec": {"template": {"spec": spec}}})))

    assert bool(made.workloads[-1].rows) is bool(woken) is kept


def test_a_job_whose_pods_are_given_accelerators_by_admission_is_kept_once_they_are_seen() -> None:
    made = observer()
    job = {"template": {"spec": {"containers": [{"name": "train"}]}}}

    put(made, (JOBS, raw("llm", 1, uid="job-uid", spec=job)), (PODS, pod("a", 2)))
    put(made, (JOBS, raw("llm", 3, uid="job-uid", spec=job)))

    assert "job-uid" in seen(made).gangs


def test_a_leader_without_accelerators_is_a_rank_of_its_gang() -> None:
    """The gang's size counts the leader, so otherwise a recovery would wait for it without end."""
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": "llm",
        "uid": "job-uid",
        "controller": True,
    }
    metadata = {**META, "ownerReferences": [owner]}

    world = put(observer(), (PODS, msgspec.json.encode({"metadata": metadata, "spec": {"containers": []}})))

    assert [p.name for p in world.pods("job-uid")] == ["llm-master-0"]


def test_a_pod_without_accelerators_and_a_kind_that_nobody_watches_are_not_kept() -> None:
    made = observer()
    plain = raw("web", 1, spec={"containers": [{"name": "c"}]}, status={})

    put(made, (PODS, plain), (Resource("", "v1", "secrets", "Secret"), raw("s", 1)))

    assert made.pods.rows == {}


def test_a_reboot_waits_for_pods_of_others_but_not_for_a_controller_of_ours() -> None:
    made = Observer(Scripted(), Settings(mode=Mode.REPAIR), lambda: None)
    ours = {"app.kubernetes.io/name": "rekindle", "app.kubernetes.io/component": "controller"}

    def replica(name: str, namespace: str, labels: dict[str, str]) -> tuple[Resource, bytes]:
        metadata = {**META, "name": name, "namespace": namespace, "uid": name, "labels": labels}
        spec = {"nodeName": "n1", "containers": [{"name": "c"}]}
        return PODS, msgspec.json.encode({"metadata": metadata, "spec": spec})

    world = put(
        made,
        replica("controller", "rekindle-system", ours),
        replica("database", "rekindle-system", {}),
        replica("impostor", "shop", ours),
    )

    assert [pod.name for pod in world.bystanders["n1"].values()] == ["database", "impostor"]


def test_an_incident_of_a_newer_version_with_a_fault_unknown_here_is_counted_as_unreadable() -> None:
    made = observer()
    newer = {"fault": "quantum-decay", "detectedAt": "2026-11-21T12:00:00Z"}
    put(made, (INCIDENTS, raw("i", 1, namespace="", spec=newer)), (NODES, raw("n1", 2, namespace="")))

    assert made.unreadable()["Incident"] == 1
    assert set(seen(made).nodes) == {"n1"}
    assert not seen(made).has_no_incident("i"), "it exists"


def test_a_pod_that_goes_away_is_remembered_until_its_gang_is_no_longer_meant_to_run() -> None:
    made = observer()
    running = {"parallelism": 2, "template": {"spec": GPU}}
    job = raw("llm", 1, uid="job-uid", spec=running)
    put(made, (JOBS, job), (PODS, pod("a", 2, node="n1")), (PODS, pod("b", 3)))

    made.pods.apply(event("DELETED", "a", 4))
    put(made, (PODS, pod("b", 5, uid="anew")))
    assert [p.uid for p in seen(made).departed["job-uid"].values()] == ["a-uid", "b-uid"]

    put(made, (JOBS, raw("llm", 6, uid="job-uid", spec={**running, "suspend": True})))
    made.pods.apply(event("DELETED", "b", 7))
    assert seen(made).departed == {}


def test_the_removal_of_an_ended_pod_does_not_change_when_it_was_told_to_end() -> None:
    """A kubelet removes the ended pod without grace, and the API server may then replace the time of the
    deletion by that of the removal. A pod of another uid has its own time."""
    made = observer()
    job = raw("llm", 1, uid="job-uid", spec={"parallelism": 2, "template": {"spec": GPU}})
    told = {"deletionTimestamp": "2026-11-21T12:00:35Z", "deletionGracePeriodSeconds": 30}
    removed = {"deletionTimestamp": "2026-11-21T12:00:09Z", "deletionGracePeriodSeconds": 0}

    put(made, (JOBS, job), (PODS, pod("a", 2)), (PODS, pod("a", 3, **told)), (PODS, pod("a", 4, **removed)))
    (gone,) = seen(made).pods("job-uid")
    assert gone.deleting_since == NOW + timedelta(seconds=5)

    put(made, (PODS, pod("a", 5, uid="anew", **removed)))
    (other,) = seen(made).pods("job-uid")
    assert other.deleting_since == NOW + timedelta(seconds=9)


def test_a_pod_that_a_new_list_lacks_is_remembered_as_gone_now() -> None:
    made = observer()
    job = raw("llm", 1, uid="job-uid", spec={"parallelism": 2, "template": {"spec": GPU}})
    put(made, (JOBS, job), (PODS, pod("a", 2, node="n1")), (PODS, pod("b", 3)))

    made.pods.begin()
    made.pods.listed(msgspec.Raw(pod("b", 3)))
    made.pods.finish("9")

    (gone,) = seen(made).departed["job-uid"].values()
    assert (gone.name, gone.is_missed) == ("a", True)
    assert gone.deleting_since is not None


def test_a_pod_that_becomes_too_large_to_keep_is_no_lost_rank() -> None:
    made = observer()
    job = raw("llm", 1, uid="job-uid", spec={"parallelism": 2, "template": {"spec": GPU}})
    put(made, (JOBS, job), (PODS, pod("a", 2, node="n1")), (PODS, pod("b", 3)))

    put(made, (PODS, pod("a", 4, node="n1", annotations={"note": "x" * 600_000})))

    assert made.unreadable()["Pod"] == 1
    assert seen(made).departed == {}


def test_pods_of_another_namespace_push_no_departed_rank_out() -> None:
    """Anybody who knows a gang's uid can name the gang as the owner of their own pods."""
    made = observer()
    job = raw("llm", 1, uid="job-uid", spec={"parallelism": 2, "template": {"spec": GPU}})
    put(made, (JOBS, job), (PODS, pod("a", 2, node="n1")), (PODS, pod("b", 3)))
    made.pods.apply(event("DELETED", "a", 4))

    for n in range(DEPARTED_MAX + 4):
        put(made, (PODS, pod(f"x{n}", 5 + 2 * n, namespace="other")))
        made.pods.apply(event("DELETED", f"x{n}", 6 + 2 * n, namespace="other"))

    assert [p.name for p in seen(made).departed["job-uid"].values()] == ["a"]


def test_of_a_recovery_that_is_gone_nothing_is_kept() -> None:
    made = observer()
    about = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "ml", "name": "llm", "uid": "old"}
    spec = {
        "gang": about,
        "number": 1,
        "incident": "i",
        "fault": "unknown",
        "detectedAt": "2026-11-21T12:00:00Z",
    }

    world = put(made, (RECOVERIES, raw("r", 1, spec=spec, status={"gangUid": "anew"})))
    assert set(world.recoveries_of) == {"old", "anew"}

    made.recoveries.apply(event("DELETED", "r", 2))
    assert seen(made).recoveries_of == {}


def test_a_kubelets_report_without_news_wakes_nobody() -> None:
    looks: list[str] = []
    seen = Observer(Scripted(), Settings(), lambda: looks.append("look"))

    def report(version: int, ready: str, beat: str) -> None:
        condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": beat}
        seen.absorb(NODES, raw("n1", version, status={"conditions": [condition]}))

    report(1, "True", "2026-11-21T12:00:00Z")
    report(2, "True", "2026-11-21T12:05:00Z")
    assert (len(looks), seen.nodes.rows["ml/n1"].version) == (1, "2")

    report(3, "False", "2026-11-21T12:10:00Z")
    assert len(looks) == 2


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_an_agent_that_dates_a_finding_beyond_all_clocks_blinds_its_own_node_and_no_other(at: str) -> None:
    """Otherwise the token of one agent could keep every gang from its recovery."""
    made = observer()
    finding = {
        **{"id": "b-kmsg-1", "code": "xid-79", "fault": "device-lost", "origin": "kernel", "bootId": "b"},
        **{"severity": "fatal", "subject": {"kind": "node"}, "firstSeen": at, "lastSeen": at},
    }
    put(made, (NODEHEALTHS, raw("n1", 1, namespace="", status={"bootId": "b", "findings": [finding]})))
    put(made, (NODEHEALTHS, raw("n2", 2, namespace="", status={"bootId": "b"})))

    assert made.unreadable()["NodeHealth"] == 1
    assert set(seen(made).health) == {"n2"}


def test_nodes_of_which_others_say_something_are_indexed_and_a_heartbeat_is_no_news() -> None:
    looks: list[str] = []
    made = Observer(Scripted(), Settings(), lambda: looks.append("look"))

    def node(version: int, status: str, heartbeat: str) -> tuple[Resource, bytes]:
        told = {"type": "GpuMemWatch", "status": status, "lastHeartbeatTime": heartbeat}
        told |= {"lastTransitionTime": "2026-11-21T11:00:00Z", "message": f"looked at {heartbeat}"}
        return NODES, raw("n1", version, status={"conditions": [told]})

    assert not put(made, node(1, "False", "2026-11-21T11:00:00Z")).signalling
    assert list(put(made, node(2, "True", "2026-11-21T11:01:00Z")).signalling) == ["n1"]
    known = len(looks)
    put(made, node(3, "True", "2026-11-21T11:02:00Z"))
    assert len(looks) == known
    assert not put(made, node(4, "Unknown", "2026-11-21T11:03:00Z")).signalling
    assert len(looks) == known + 1

    put(made, node(5, "True", "2026-11-21T11:04:00Z"))
    relist(made.nodes, [], "9")
    assert not seen(made).signalling


async def test_a_job_whose_pods_alone_show_devices_is_a_gang_whatever_answers_first() -> None:
    """Admission may add the devices to the pods. The list of Jobs is short, and would be answered first."""
    store = MemoryCluster(lambda: NOW)
    consent = {"rekindle.dev/auto-recovery": "enabled"}
    store.create(NAMESPACES, {"metadata": {"name": "ml", "labels": consent}})
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "train"}]}}
    meta: dict[str, Any] = {"name": "llm", "namespace": "ml"}
    made = store.create(JOBS, {"metadata": meta, "spec": {"template": template}}, "ml")
    owner = OWNER | {"uid": made.body["metadata"]["uid"]}
    meta = {"name": "llm-0", "namespace": "ml", "ownerReferences": [owner]}
    store.create(PODS, {"metadata": meta, "spec": GPU}, "ml")

    class LatePods(Client):
        async def list(self, resource: Resource, **of: Any) -> ListPage:
            await asyncio.sleep(0.05 if resource == PODS else 0)
            return await super().list(resource, **of)

    observer = Observer(LatePods(store, "controller"), Settings(), lambda: None, lambda: NOW)
    watching = asyncio.create_task(observer.run())
    try:
        async with asyncio.timeout(20):
            await observer.synced()
        known = [gang for cache in observer.workloads for gang in cache.rows]
        assert known == ["ml/llm"]
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
