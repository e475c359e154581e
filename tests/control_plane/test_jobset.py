"""JobSets recovered under the real JobSet controller: no failure policy is used up, whatever it allows.

Each test prints the counters of the JobSet before and after; run it with `-s` to see them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from recover.k8s.kinds import JOBS, JOBSETS, NODES, PODS
from tests.control_plane.cases import (
    OPTED_IN,
    RECREATE,
    cordons,
    creation_s,
    ended,
    has_no_mark,
    no_trouble,
    nodes_of,
    patched,
    recoveries,
    refusals,
    uids,
    writes_to,
)
from tests.control_plane.controllers import start_controller
from tests.control_plane.plane import AUDIT_LAG_S, AuditedWrite, ControlPlane, Program
from tests.control_plane.stage import LIMIT_S, NAMESPACE, RealStage, now, raised

pytestmark = pytest.mark.control_plane

WIDE = ("mode=recover", "budgets.quarantined_percent_max=100")
RANKS = 4
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
OF_LLM = "jobset.sigs.k8s.io/jobset-name=llm"
NO_POLICY: dict[str, Any] = {}


def jobset(
    *,
    backoff_limit: int = 0,
    labels: Mapping[str, str] = OPTED_IN,
    annotations: Mapping[str, str] = {},
    dying: str = "",
    pod: Mapping[str, Any] = {},
    **spec: Any,
) -> dict[str, Any]:
    """Returns a JobSet with two Jobs of two ranks each; `dying` is explained in dying.yaml."""
    container = {
        "name": "train",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": "4"}},
        "envFrom": [{"configMapRef": {"name": "llm-rekindle-jobset", "optional": True}}],
    }
    template = {
        "metadata": {"annotations": {"dying": dying} if dying else {}},
        "spec": {"restartPolicy": "Never", "containers": [container], **pod},
    }
    job = {"parallelism": 2, "completions": 2, "backoffLimit": backoff_limit, "template": template}
    return {
        "apiVersion": JOBSETS.api_version,
        "kind": JOBSETS.kind,
        "metadata": {"name": "llm", "labels": dict(labels), "annotations": dict(annotations)},
        "spec": {"replicatedJobs": [{"name": "ranks", "replicas": 2, "template": {"spec": job}}], **spec},
    }


async def trained(stage: RealStage, job: Mapping[str, Any], ranks: int = RANKS) -> list[Any]:
    """Creates the JobSet and returns its pods, each at step 100. Waits one more second, because Rekindle
    ignores faults from before the mode began."""
    await stage.create(JOBSETS, job, NAMESPACE)
    pods = await running(stage, ranks)
    for pod in pods:
        await stage.steps(pod, first=1, last=100)
    await asyncio.sleep(1)
    await told(stage, "before")
    return pods


async def running(stage: RealStage, ranks: int = RANKS, *, but: Sequence[str] = ()) -> list[Any]:
    async def found() -> list[Any]:
        pods = await stage.all(PODS, NAMESPACE, OF_LLM)
        up = [p for p in pods if p["status"]["phase"] == "Running" and p["metadata"]["uid"] not in but]
        return up if len(up) == ranks else []

    return list(await stage.until(f"{ranks} running pods", found))


async def trains_again(stage: RealStage, old: Sequence[Any]) -> list[Any]:
    """Returns the new pods, one of which has made a step."""
    new = await running(stage, len(old), but=uids(old))
    await stage.steps(new[0], first=91, last=91)
    return new


async def told(stage: RealStage, when: str) -> dict[str, Any]:
    """Prints and returns what JobSet reports about itself."""
    found = await stage.get(JOBSETS, "llm", NAMESPACE)
    status = found.get("status", {})
    jobs = await stage.all(JOBS, NAMESPACE)
    row = {
        "suspend": found["spec"].get("suspend", False),
        "restarts": status.get("restarts", 0),
        "counted": status.get("restartsCountTowardsMax", 0),
        "conditions": [c["reason"] for c in status.get("conditions", []) if c["status"] == "True"],
        "failed pods": sum(job["status"].get("failed", 0) for job in jobs),
    }
    print(f"{when}: {row}")
    return row


WHOLE = {"suspend": False, "counted": 0, "conditions": [], "failed pods": 0}


async def test_a_jobset_is_moved_off_two_nodes_in_a_row_and_nothing_is_counted(jobsets: ControlPlane) -> None:
    async with raised(jobsets, nodes=4, settings=WIDE, agents=0) as stage:
        first = await trained(stage, jobset(failurePolicy={"maxRestarts": 0}))
        before = await stage.get(JOBSETS, "llm", NAMESPACE)
        bad = first[0]["spec"]["nodeName"]

        await stage.xid_79(bad)
        second = await trains_again(stage, first)
        await ended(stage, "llm", "Succeeded")

        assert bad not in nodes_of(second)
        assert await told(stage, "after the first") == {**WHOLE, "restarts": 1}
        worse = second[0]["spec"]["nodeName"]
        await stage.xid_79(worse)
        third = await trains_again(stage, second)
        await stage.until("two recoveries Succeeded", lambda: all_succeeded(stage, 2))

        assert nodes_of(third).isdisjoint({bad, worse})
        assert await told(stage, "after the second") == {**WHOLE, "restarts": 2}
        after = await stage.get(JOBSETS, "llm", NAMESPACE)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert await cordons(stage) == {bad, worse}
        no_trouble(stage)


async def all_succeeded(stage: RealStage, count: int) -> bool:
    phases = [recovery["status"]["phase"] for recovery in await recoveries(stage, "llm")]
    return phases == ["Succeeded"] * count


@pytest.mark.parametrize(
    "policy",
    [NO_POLICY, {"failurePolicy": {"maxRestarts": 0}}, {"failurePolicy": {"maxRestarts": 3}}],
    ids=["no failure policy", "no restart allowed", "three restarts allowed"],
)
async def test_a_crashed_rank_restarts_the_gang_before_jobset_fails_it_or_counts_a_restart(
    jobsets: ControlPlane, policy: Mapping[str, Any]
) -> None:
    """With backoffLimit 0 a failed pod fails its Job, and JobSet would react to that about 1.2 s later. The
    test prints how quick Rekindle is, and lets Rekindle be first."""
    async with raised(jobsets, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, jobset(dying="143", **policy))
        since, began = jobsets.audit_position(), now()

        await crashes(stage, jobsets, old[0])
        new = await trains_again(stage, old)
        recovery = await ended(stage, "llm", "Succeeded")

        assert recovery["spec"]["fault"] == "application"
        assert {pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] for pod in new} == {"1"}
        assert await told(stage, "after") == {**WHOLE, "restarts": 1}
        (renewed,) = [write for write in jobsets.audited(since) if is_renewal(write)]
        took_ms = (renewed.stage_timestamp - began).total_seconds() * 1000
        print(f"from the pod's failure to the next number of restarts: {took_ms:.0f} ms")
        assert took_ms < 10_000, "no timer of Rekindle's lies in between"
        await stage.until("mark taken back", partial(has_no_mark, stage, JOBSETS, "llm"))
        await asyncio.sleep(AUDIT_LAG_S)
        assert writes_to(jobsets, since, JOBSETS, "llm") == ["patch"] * 4, "stop, renewal, start, mark"
        assert await cordons(stage) == set()
        no_trouble(stage)


async def crashes(stage: RealStage, plane: ControlPlane, pod: Any) -> None:
    """The pod fails. The Job controller sees it only when Rekindle has asked for new Jobs: which of the two
    is quicker on a busy machine is a matter of luck."""
    since = plane.audit_position()

    async def is_asked() -> bool:
        return any(is_renewal(write) for write in plane.audited(since))

    job_controller = plane.programs["kube-controller-manager"].pid
    os.kill(job_controller, signal.SIGSTOP)
    try:
        await stage.end(pod, exit_code=1)
        await stage.until("request for new Jobs", is_asked)
    finally:
        os.kill(job_controller, signal.SIGCONT)


def is_renewal(write: AuditedWrite) -> bool:
    """Whether the write is the JobSet status write of Rekindle's controller, which sets status.restarts."""
    written = (write.object_ref.resource, write.object_ref.subresource, write.succeeded)
    return "rekindle-controller" in write.user.username and written == ("jobsets", "status", True)


async def test_retries_of_the_jobs_cost_the_gang_no_wait(jobsets: ControlPlane) -> None:
    """A Job that has seen one failed pod would wait 10 s before its next pod; Jobs that are created again do
    not wait."""
    async with raised(jobsets, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, jobset(backoff_limit=6))

        await stage.end(old[0], exit_code=1)
        new = await trains_again(stage, old)
        recovery = await ended(stage, "llm", "Succeeded")

        print(f"pods created within {creation_s(recovery, new):.1f} s")
        assert creation_s(recovery, new) < 8
        assert await told(stage, "after") == {**WHOLE, "restarts": 1}


async def test_a_jobset_that_tolerates_every_taint_is_kept_off_by_the_affinity_of_its_jobs(
    jobsets: ControlPlane,
) -> None:
    async with raised(jobsets, nodes=3, settings=WIDE, agents=0) as stage:
        pod = {"tolerations": [{"operator": "Exists"}]}
        old = await trained(stage, jobset(pod=pod))
        bad = old[0]["spec"]["nodeName"]

        await stage.xid_79(bad)
        new = await trains_again(stage, old)
        await ended(stage, "llm", "Succeeded")

        assert bad not in nodes_of(new)
        for job in await stage.all(JOBS, NAMESPACE):
            affinity = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
            (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            assert term["matchExpressions"][0]["values"] == [bad]
        no_trouble(stage)


async def test_a_leader_without_accelerators_and_the_ranks_that_wait_for_it_come_back_together(
    jobsets: ControlPlane,
) -> None:
    """While the JobSet is suspended only the leader's Job exists. The Jobs of the ranks appear after the
    start."""
    job = jobset()
    (ranks,) = job["spec"]["replicatedJobs"]
    spec = ranks["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    pod = {"restartPolicy": "Never", "containers": [{**container, "resources": {}}]}
    led = {**spec, "parallelism": 1, "completions": 1, "template": {"spec": pod}}
    leader = {"name": "leader", "replicas": 1, "template": {"spec": led}}
    waiting = {**ranks, "dependsOn": [{"name": "leader", "status": "Ready"}]}
    job["spec"]["replicatedJobs"] = [leader, waiting]
    async with raised(jobsets, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, job, RANKS + 1)
        since = jobsets.audit_position()

        (led_pod,) = [p for p in old if p["metadata"]["name"].startswith("llm-leader")]
        await crashes(stage, jobsets, led_pod)
        await trains_again(stage, old)
        await ended(stage, "llm", "Succeeded")

        await stage.until("mark taken back", partial(has_no_mark, stage, JOBSETS, "llm"))
        await asyncio.sleep(AUDIT_LAG_S)
        assert writes_to(jobsets, since, JOBSETS, "llm") == ["patch"] * 4
        assert await told(stage, "after") == {**WHOLE, "restarts": 1}
        no_trouble(stage)


async def test_a_jobset_with_a_rank_on_a_dead_node_goes_on_elsewhere_once_a_person_says_that_it_is_off(
    jobsets: ControlPlane,
) -> None:
    """The rank's Job is deleted in the foreground and waits for the rank's pod, which nobody ends."""
    async with raised(jobsets, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, jobset())
        dead_node = old[0]["spec"]["nodeName"]
        await stage.dies(dead_node)
        await stage.xid_79(dead_node)
        await ended(stage, "llm", "Fencing")

        taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
        taints = (await stage.get(NODES, dead_node))["spec"]["taints"]
        await stage.patch(NODES, dead_node, {"spec": {"taints": [*taints, taint]}})
        new = await trains_again(stage, old)
        await ended(stage, "llm", "Succeeded")

        assert dead_node not in nodes_of(new)
        assert await told(stage, "after") == {**WHOLE, "restarts": 1}
        no_trouble(stage)


async def test_a_jobset_that_failed_for_good_is_not_touched_or_is_made_anew_with_consent(
    jobsets: ControlPlane,
) -> None:
    async with raised(jobsets, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, jobset(labels={}))
        await stage.end(old[0], exit_code=1)
        await stage.until("the JobSet Failed", lambda: has_failed(stage))
        before = await stage.get(JOBSETS, "llm", NAMESPACE)
        since = jobsets.audit_position()

        await patched(stage, JOBSETS, "llm", {"metadata": {"labels": dict(OPTED_IN)}})
        await stage.until("a refusal TerminalJob", lambda: is_refused(stage, "TerminalJob"))

        assert await recoveries(stage, "llm") == []
        assert writes_to(jobsets, since, JOBSETS, "llm") == []
        await patched(stage, JOBSETS, "llm", {"metadata": {"annotations": RECREATE}})
        await trains_again(stage, old)
        await ended(stage, "llm", "Succeeded")

        after = await stage.get(JOBSETS, "llm", NAMESPACE)
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert await told(stage, "made anew") == {**WHOLE, "restarts": 0}
        no_trouble(stage)


async def has_failed(stage: RealStage) -> bool:
    status = (await stage.get(JOBSETS, "llm", NAMESPACE))["status"]
    return str(status.get("terminalState")) == "Failed"


async def is_refused(stage: RealStage, reason: str) -> bool:
    return reason in (await refusals(stage, "llm")).values()


@pytest.mark.parametrize("writes", [1, 2], ids=["suspended", "renewed"])
async def test_a_controller_that_is_killed_in_the_middle_of_a_stop_loses_and_repeats_no_write(
    jobsets: ControlPlane, writes: int
) -> None:
    """The controller is killed as soon as that many of its writes are in the audit log: its next write is
    mostly not there yet."""
    async with raised(jobsets, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, jobset(dying="143"))
        since = jobsets.audit_position()
        await stage.xid_79(old[0]["spec"]["nodeName"])
        async with asyncio.timeout(LIMIT_S):
            while len(writes_to(jobsets, since, JOBSETS, "llm")) < writes:
                await asyncio.sleep(0.002)
        await stage.controller.kill()
        await told(stage, "killed")

        again = await start_controller(stage.api, jobsets, WIDE)
        try:
            await trains_again(stage, old)
            await ended(stage, "llm", "Succeeded")
            await stage.until("mark taken back", partial(has_no_mark, stage, JOBSETS, "llm"))
        finally:
            await again.stop()

        await asyncio.sleep(AUDIT_LAG_S)
        assert await told(stage, "after") == {**WHOLE, "restarts": 1}
        assert writes_to(jobsets, since, JOBSETS, "llm") == ["patch"] * 4, "stop, renewal, start, mark"


async def test_a_stop_that_the_webhook_of_a_dead_controller_refuses_is_said_and_taken_when_it_is_back(
    jobsets: ControlPlane,
) -> None:
    settings = (*WIDE, "timing.stop_deadline_s=10")  # the pods must end within it, too
    async with raised(jobsets, nodes=3, settings=settings, agents=0) as stage:
        old = await trained(stage, jobset())
        with dead(jobsets.programs["jobset"]):
            await stage.xid_79(old[0]["spec"]["nodeName"])
            await stage.until("FrameworkSilent", lambda: stands(stage, "Stopping", "FrameworkSilent"))
            assert uids(await running(stage)) == uids(old)
        await trains_again(stage, old)

        await ended(stage, "llm", "Succeeded")
        assert await told(stage, "after") == {**WHOLE, "restarts": 1}


async def test_a_stopped_jobset_whose_controller_died_is_started_only_when_its_jobs_were_made_anew(
    jobsets: ControlPlane,
) -> None:
    settings = (*WIDE, "timing.resume_deadline_s=1")
    async with raised(jobsets, nodes=3, settings=settings, agents=0) as stage:
        old = await trained(stage, jobset(dying="never"))
        await stage.xid_79(old[0]["spec"]["nodeName"])
        await stage.until("every old pod told to end", lambda: all_ending(stage))
        with dead(jobsets.programs["jobset"]):
            for pod in old:
                path = PODS.path(pod["metadata"]["name"], NAMESPACE)
                await stage.api.request("DELETE", path, body={"gracePeriodSeconds": 0})
            await stage.until("FrameworkSilent", lambda: stands(stage, "Blocked", "FrameworkSilent"))
            assert (await told(stage, "without its controller"))["suspend"] is True
        await trains_again(stage, old)

        await ended(stage, "llm", "Succeeded")
        assert await told(stage, "after") == {**WHOLE, "restarts": 1}


@contextmanager
def dead(program: Program) -> Iterator[None]:
    program.kill()
    try:
        yield
    finally:
        program.start()


async def stands(stage: RealStage, phase: str, reason: str) -> bool:
    found = [r["status"] for r in await recoveries(stage, "llm")]
    return [(status["phase"], status.get("reason")) for status in found] == [(phase, reason)]


async def all_ending(stage: RealStage) -> bool:
    pods = await stage.all(PODS, NAMESPACE, OF_LLM)
    return all("deletionTimestamp" in pod["metadata"] for pod in pods)
