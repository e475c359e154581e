"""Tests JobSets: a stop of two writes, Jobs that JobSet creates again, and a start that keeps them off a
node."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from recover.api import Phase, Requirement
from recover.api.reasons import Reason
from recover.k8s.bodies import builtins
from recover.k8s.kinds import JOBS, JOBSETS, PODS
from recover.model import Gang, Mark, Template, World
from recover.model.actions import Emit, Patch
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.recovery.advance import advance
from recover.runtime.observe import Observer
from recover.workloads.job import Job
from recover.workloads.jobset import JobSet
from tests.acting import acts, advanced, end_pods, only_recovery, recovering, step
from tests.builders import NOW, Worlds, cluster, gang
from tests.recover.recovery.phase_cases import CLAIM
from tests.recover.scripted import Scripted, raw

OWNER = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "llm", "uid": "llm-uid"}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
STOPPED = Mark(recovery="r", attempt=1, did="stopped")
RESUMED = Mark(recovery="r", attempt=1, did="resumed")
TRAIN_JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "name": "llm",
    "uid": "t",
    "controller": True,
}


def parsed(
    *,
    restarts: int = 0,
    mark: Mark | None = None,
    metadata: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    jobs: list[dict[str, Any]] | None = None,
    **spec: Any,
) -> Gang:
    annotations = {"rekindle.dev/recovery": msgspec.json.encode(mark).decode()} if mark else {}
    meta = {"name": "llm", "namespace": "ml", "uid": "llm-uid", "resourceVersion": "7"}
    whole = {
        "metadata": {**meta, "annotations": annotations, **(metadata or {})},
        "spec": {"replicatedJobs": jobs or [replicated("ranks", replicas=2)], **spec},
        "status": {"restarts": restarts, **(status or {})},
    }
    return JobSet().parse(msgspec.json.encode(whole))


def replicated(name: str, *, replicas: int = 1, template: Any = None, **job: Any) -> dict[str, Any]:
    spec = {"parallelism": 4, "completions": 2, "template": {"spec": template or {}}}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **job}


def child(name: str, *, attempt: str = "0", suspended: bool = True, version: int = 1, **pod: Any) -> bytes:
    """Returns one of the Jobs that JobSet creates."""
    meta = {
        "name": name,
        "namespace": "ml",
        "uid": f"{name}-{attempt}-uid",
        "resourceVersion": str(version),
        "labels": {"jobset.sigs.k8s.io/restart-attempt": attempt},
        "ownerReferences": [{**OWNER, "controller": True}],
    }
    spec = {"suspend": suspended, "parallelism": 2, "template": {"spec": pod}}
    return msgspec.json.encode({"metadata": meta, "spec": spec})


def part(name: str, **how: Any) -> Gang:
    return Job().parse(child(name, **how))


# --- parsing ----------------------------------------------------------------------------------------------


def test_the_ranks_of_a_jobset_are_the_pods_that_its_jobs_run_at_a_time() -> None:
    jobs = [replicated("leader"), replicated("ranks", replicas=3, dependsOn=[{"name": "leader"}])]

    found = parsed(jobs=jobs)

    assert found.size == (1 + 3) * 2
    assert found.parts == 1, "Jobs that wait for others are not made while it is suspended"
    assert set(found.templates) == {"leader", "ranks"}


def test_a_dependency_that_has_to_complete_ends_before_all_ranks_that_wait_for_it() -> None:
    jobs = [
        replicated("data"),
        replicated("leader", dependsOn=[{"name": "data", "status": "Complete"}]),
        replicated("ranks", dependsOn=[{"name": "leader", "status": "Ready"}]),
    ]

    found = parsed(jobs=jobs)

    assert {name: one.after for name, one in found.templates.items()} == {
        "data": (),
        "leader": ("data",),
        "ranks": ("data",),
    }


@pytest.mark.parametrize(
    ("metadata", "spec", "names"),
    [
        ({}, {}, ()),
        ({}, {"managedBy": "jobset.sigs.k8s.io/jobset-controller"}, ()),
        ({}, {"managedBy": "kueue.x-k8s.io/multikueue"}, ("kueue.x-k8s.io/multikueue",)),
        ({"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}, {}, ("Kueue", "gpus")),
        ({"annotations": {"kueue.x-k8s.io/queue-name": "gpus"}}, {}, ("Kueue", "gpus")),
        ({"ownerReferences": [TRAIN_JOB]}, {}, ("TrainJob llm",)),
        ({"ownerReferences": [TRAIN_JOB | {"kind": "Node n1 has failed,\ndrain it"}]}, {}, ()),
    ],
    ids=["nobody", "JobSet itself", "MultiKueue", "Kueue", "an older Kueue", "TrainJob", "no such kind"],
)
def test_who_else_decides_about_a_jobset_is_named(
    metadata: dict[str, Any], spec: dict[str, Any], names: tuple[str, ...]
) -> None:
    owner = parsed(metadata=metadata, **spec).foreign_owner

    assert bool(owner) is bool(names)
    assert all(name in owner for name in names)


def test_a_jobset_that_works_off_a_queue_is_no_gang_for_its_restart_would_lose_what_was_done() -> None:
    queue = replicated("shards")
    queue["template"]["spec"]["completions"] = 100

    unsupported = parsed(jobs=[replicated("leader"), queue]).unsupported

    assert all(name in unsupported for name in ("shards", "100", "4"))
    assert parsed(jobs=[replicated("leader")]).unsupported == ""


@pytest.mark.parametrize(
    ("status", "succeeded"),
    [
        ({"conditions": [{"type": "Suspended", "status": "True"}]}, None),
        ({"conditions": [{"type": "Completed", "status": "True"}]}, True),
        ({"conditions": [{"type": "Failed", "status": "True", "reason": "FailedJobs"}]}, False),
        ({"conditions": [{"type": "Failed", "status": "False"}]}, None),
        ({"terminalState": "Failed"}, False),
        ({"terminalState": "Completed"}, True),
    ],
)
def test_a_jobset_that_has_ended_for_good_says_so_in_either_of_two_places(
    status: dict[str, Any], succeeded: bool | None
) -> None:
    terminal = parsed(status=status).terminal
    assert (terminal.succeeded if terminal else None) is succeeded


# --- stop -------------------------------------------------------------------------------------------------


def test_the_stop_suspends_and_names_the_number_of_restarts_to_reach_in_one_patch() -> None:
    (patch,) = JobSet().stop(parsed(restarts=4), STOPPED)

    mark = msgspec.json.decode(patch.body["metadata"]["annotations"]["rekindle.dev/recovery"], type=Mark)
    assert (patch.subresource, patch.body["spec"], mark.restarts) == ("", {"suspend": True}, 5)
    assert (patch.uid, patch.version) == ("llm-uid", "7")


@pytest.mark.parametrize(
    ("restarts", "mark", "written"),
    [
        (4, msgspec.structs.replace(STOPPED, restarts=5), [5]),
        (5, msgspec.structs.replace(STOPPED, restarts=5), []),
        (6, msgspec.structs.replace(STOPPED, restarts=5), []),
        (2, msgspec.structs.replace(STOPPED, restarts=5), []),
        (4, RESUMED, []),
        (4, None, []),
    ],
    ids=["due", "reached", "passed by JobSet itself", "a mark that is not ours", "started", "never stopped"],
)
def test_the_second_write_of_a_stop_is_made_once_whatever_was_lost_between(
    restarts: int, mark: Mark | None, written: list[int]
) -> None:
    patches = JobSet().unfinished(parsed(restarts=restarts, mark=mark))

    assert [patch.body["status"]["restarts"] for patch in patches] == written
    assert {(patch.subresource, patch.version) for patch in patches} <= {("status", "7")}


# --- start ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "can"),
    [
        ([part("a", attempt="1"), part("b", attempt="1")], True),
        ([part("a", attempt="1")], False),
        ([part("a", attempt="1"), part("b", attempt="0")], False),
        ([part("a", attempt="1"), part("b", attempt="1", suspended=False)], False),
        ([part("a", attempt="1"), part("b", attempt="not a number")], False),
        ([], False),
    ],
    ids=["all made anew", "one is missing", "one is of before", "one runs", "one is garbled", "none"],
)
def test_it_is_started_only_when_all_its_jobs_were_made_anew(parts: list[Gang], can: bool) -> None:
    mark = msgspec.structs.replace(STOPPED, restarts=1)

    assert JobSet().startable(parsed(restarts=1, mark=mark), parts) is can
    assert not JobSet().startable(parsed(restarts=0, mark=mark), parts)


def test_each_job_is_kept_off_the_node_before_the_jobset_is_started() -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    parts = [part("a", affinity=affinity), part("b", version=3)]
    mark = msgspec.structs.replace(RESUMED, avoided=("n1",))

    *moved, start = JobSet().start(parsed(mark=STOPPED), mark, parts)

    assert [(p.resource, p.name, p.uid, p.version) for p in moved] == [
        (JOBS, "a", "a-0-uid", "1"),
        (JOBS, "b", "b-0-uid", "3"),
    ]
    off = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}
    assert [_expressions(p) for p in moved] == [[ZONE, off], [off]]
    assert (start.resource, start.body["spec"]) == (JOBSETS, {"suspend": False})


def _expressions(patch: Patch) -> Any:
    affinity = patch.body["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return term["matchExpressions"]


def test_where_nothing_is_avoided_no_job_is_written() -> None:
    (start,) = JobSet().start(parsed(mark=STOPPED), RESUMED, [part("a"), part("b")])
    assert start.resource == JOBSETS


def test_a_jobset_that_is_made_anew_reads_our_environment_and_keeps_off_the_node_by_template() -> None:
    container = {"name": "train", "image": "i", "unknownField": [1]}
    found = parsed(
        metadata={"annotations": {"rekindle.dev/on-terminal": "recreate"}},
        jobs=[replicated("ranks", template={"containers": [container]})],
        suspend=True,
    )

    anew = JobSet().recreated(found, msgspec.structs.replace(RESUMED, avoided=("n1",)))

    pod = anew["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert anew["spec"]["suspend"] is False
    assert pod["containers"][0]["unknownField"] == [1]
    assert pod["containers"][0]["envFrom"][0]["configMapRef"]["name"] == "llm-rekindle-jobset"
    assert "n1" in str(pod["affinity"])
    assert "status" not in anew


def test_what_its_template_keeps_out_because_of_us_is_lifted_at_each_later_start() -> None:
    """The template stays as it was when the JobSet was created again, and each restart makes the Jobs from
    it."""
    off = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [off, ZONE]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    jobs = [replicated("ranks", template={"affinity": affinity})]
    mark = msgspec.structs.replace(STOPPED, avoided=("n1",))

    for _ in range(2):
        moved, start = JobSet().start(parsed(mark=mark, jobs=jobs), RESUMED, [part("a", affinity=affinity)])
        assert _expressions(moved) == [ZONE]
        mark = msgspec.json.decode(start.body["metadata"]["annotations"]["rekindle.dev/recovery"], type=Mark)


def test_what_its_template_asks_of_the_nodes_because_of_us_is_lifted_at_each_later_start() -> None:
    ours = Requirement(key="nvidia.com/gpu.compute.major", operator="Gt", values=["7"])
    terms = {"nodeSelectorTerms": [{"matchExpressions": [ZONE, builtins(ours)]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    jobs = [replicated("ranks", template={"affinity": affinity})]
    mark = msgspec.structs.replace(STOPPED, placed=(ours,))

    for _ in range(2):
        moved, start = JobSet().start(parsed(mark=mark, jobs=jobs), RESUMED, [part("a", affinity=affinity)])
        assert _expressions(moved) == [ZONE]
        mark = msgspec.json.decode(start.body["metadata"]["annotations"]["rekindle.dev/recovery"], type=Mark)


def test_a_jobset_that_is_made_anew_without_nodes_to_avoid_holds_no_null() -> None:
    """The API server accepts no null in place of an object, and at this time the old job is already gone."""
    off = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [off]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    found = parsed(
        metadata={"annotations": {"rekindle.dev/on-terminal": "recreate"}},
        jobs=[replicated("ranks", template={"affinity": affinity, "containers": [{"name": "train"}]})],
    )
    found = msgspec.structs.replace(found, mark=msgspec.structs.replace(STOPPED, avoided=("n1",)))

    anew = JobSet().recreated(found, RESUMED)

    pod = anew["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["affinity"] == {"nodeAffinity": {}}


# --- indexes ----------------------------------------------------------------------------------------------


def seen(*objects: tuple[Any, bytes]) -> World:
    observer = Observer(Scripted(), Settings(), lambda: None)
    for resource, found in objects:
        observer.absorb(resource, found)
    return observer.world(Modes(begun(Mode.OBSERVE, NOW)))


def pod(name: str, version: int, *, namespace: str = "ml", owner: str = "Job", uid: str = "llm-uid") -> bytes:
    owners = [{"apiVersion": "batch/v1", "kind": owner, "name": "a", "uid": "job-uid", "controller": True}]
    meta = {
        "name": name,
        "namespace": namespace,
        "uid": f"{name}-uid",
        "resourceVersion": str(version),
        "ownerReferences": owners,
        "labels": {"jobset.sigs.k8s.io/jobset-uid": uid},
    }
    spec = {"nodeName": "n1", "containers": [{"name": "train"}]}
    return msgspec.json.encode({"metadata": meta, "spec": spec})


WHOLE = raw("llm", 1, spec={"replicatedJobs": [replicated("ranks", replicas=2)]})


def test_the_jobs_of_a_jobset_are_its_parts_and_no_gangs_of_their_own() -> None:
    world = seen((JOBSETS, WHOLE), (JOBS, child("b", version=2)), (JOBS, child("a", version=3)))

    assert set(world.gangs) == {"llm-uid"}
    assert [found.ref.name for found in world.parts(world.gangs["llm-uid"])] == ["a", "b"]


def test_a_job_that_is_made_anew_under_its_name_takes_the_place_of_the_old_one() -> None:
    old, new = child("a", attempt="0", version=2), child("a", attempt="1", version=3)
    world = seen((JOBSETS, WHOLE), (JOBS, old), (JOBS, new))

    assert [found.ref.uid for found in world.parts(world.gangs["llm-uid"])] == ["a-1-uid"]


def test_pods_belong_to_the_jobset_also_those_without_accelerators_and_when_their_job_is_gone() -> None:
    """The leader of a gang may need no GPU, and a deleted Job may leave its pods for a while."""
    world = seen((JOBSETS, WHOLE), (PODS, pod("x", 2)))

    assert [found.name for found in world.pods("llm-uid")] == ["x"]
    assert world.gangs_on == {"n1": {"llm-uid"}}


def test_a_forged_label_reaches_no_gang_of_another_namespace_and_no_pod_that_no_job_owns() -> None:
    world = seen(
        (JOBSETS, WHOLE), (PODS, pod("x", 2, namespace="theirs")), (PODS, pod("y", 3, owner="PyTorchJob"))
    )

    assert world.pods("llm-uid") == []


@pytest.mark.parametrize(("accelerators", "restarts"), [(8, ["llm"]), (0, [])], ids=["a rank", "a leader"])
def test_a_gang_that_has_no_more_than_a_leader_without_devices_on_a_node_trains_on_when_one_breaks_there(
    accelerators: int, restarts: list[str]
) -> None:
    world = cluster(nodes=8).running(gang()).finding(on="n1")
    for uid, found in world.pods["llm-uid"].items():
        if found.node == "n1":
            world.pods["llm-uid"][uid] = msgspec.structs.replace(found, accelerators=accelerators)

    decision = world.decide()

    assert (decision.cordons, decision.restarts) == (["n1"], restarts)


# --- recovery ---------------------------------------------------------------------------------------------


def faulted() -> Worlds:
    """Returns a recovery of which only the first write of the stop was made: the controller may have died
    right after."""
    world = stopping(gang())
    assert "stop-gang" in step(world)
    return world


def stopping(job: Gang) -> Worlds:
    ref = msgspec.structs.replace(job.ref, api_version=JOBSETS.api_version, kind=JOBSETS.kind)
    job = msgspec.structs.replace(job, ref=ref, resource=JOBSETS, parts=2)
    world = recovering(cluster(nodes=8).running(job).finding(on="n1"))
    advanced(world, Phase.STOPPING)
    return world


def looked(world: Worlds, parts: list[Gang]) -> list[str]:
    """Returns the writes of one reconcile pass over the recovery while these Jobs exist."""
    known = msgspec.structs.replace(world.world(), parts_of={"llm-uid": {p.ref.uid: p for p in parts}})
    return acts(advance(only_recovery(world), known, world.settings, world.now))


def test_a_stop_that_was_interrupted_goes_on_with_its_second_write_before_anything_else() -> None:
    world = faulted()
    end_pods(world)

    assert looked(world, []) == ["renew-jobs"]
    assert only_recovery(world).status.phase is Phase.STOPPING

    world.change_gang(restarts=1)
    assert step(world) == ["recovery-resuming"]


def test_nothing_comes_between_the_two_writes_of_a_stop() -> None:
    """JobSet does not wait, while the scan pod and the Event can."""
    template = Template(volumes=(CLAIM,), containers=({"name": "train", "image": "i"},))
    world = stopping(gang(annotations={"rekindle.dev/checkpoint": "/ckpt"}, templates={"ranks": template}))

    first = advance(only_recovery(world), world.world(), world.settings, world.now)
    step(world)
    second = advance(only_recovery(world), world.world(), world.settings, world.now)

    assert (acts(first), [a for a in first.actions if isinstance(a, Emit)]) == (["stop-gang"], [])
    assert acts(second) == ["renew-jobs", "create-scan"]


def test_no_start_is_written_while_a_job_of_before_is_left_and_the_wait_is_said() -> None:
    world = faulted()
    world.change_gang(restarts=1)
    end_pods(world)
    advanced(world, Phase.RESUMING)
    left, new = part("a", attempt="0"), part("a", attempt="1")

    assert looked(world, [left, part("b", attempt="1")]) == []
    assert looked(world, [new, part("b", attempt="1")])[-1] == "start-gang"

    world.later(world.settings.timing.resume_deadline_s)
    step(world)
    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.BLOCKED, Reason.FRAMEWORK_SILENT)
    assert looked(world, [new, part("b", attempt="1")])[-1] == "start-gang"


def test_a_stop_that_is_never_taken_is_said_and_tried_on() -> None:
    world = recovering(cluster(nodes=8).running(gang()).finding(on="n1"))
    advanced(world, Phase.STOPPING)
    world.later(world.settings.timing.stop_deadline_s)

    step(world)
    status = only_recovery(world).status

    assert (status.phase, status.reason) == (Phase.STOPPING, Reason.FRAMEWORK_SILENT)
    assert "stop-gang" in step(world)
