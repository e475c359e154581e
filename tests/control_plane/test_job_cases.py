"""Indexed Jobs on the real Job controller: each way in which a gang may be lost, with its expected end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recover.k8s.kinds import JOBS, NODES, PODS
from recover.workloads.patches import MARK
from tests.control_plane.cases import (
    RECREATE,
    cordons,
    creation_s,
    ended,
    incident_of,
    indexed_job,
    living,
    no_trouble,
    nodes_of,
    patched,
    pods_of,
    recovered,
    recoveries,
    refusals,
    trained,
    uids,
    writes_to,
)
from tests.control_plane.plane import AUDIT_LAG_S, ControlPlane
from tests.control_plane.stage import NAMESPACE, RealStage, now, raised

pytestmark = pytest.mark.control_plane

WIDE = ("mode=recover", "budgets.quarantined_percent_max=100")
"""Settings that let several nodes of a small cluster be quarantined, as the cases of one stage need."""


async def job_of(stage: RealStage, name: str) -> Any:
    return await stage.get(JOBS, name, NAMESPACE)


# --- how old pods end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("exit_code", ["143", "0"])
async def test_no_rank_starts_before_the_last_old_one_has_ended_and_none_counts_whatever_it_exits_with(
    control_plane: ControlPlane, exit_code: str
) -> None:
    """An index whose pod exits with 0 after Rekindle's stop is not completed: the Job controller creates it
    again."""
    async with raised(control_plane, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, indexed_job("llm", dying=exit_code))
        bad = old[0]["spec"]["nodeName"]
        seen: list[tuple[int, int]] = []
        watching = asyncio.create_task(overlaps(stage, "llm", uids(old), seen))

        await stage.xid_79(bad)
        await recovered(stage, "llm", old)
        watching.cancel()

        assert [row for row in seen if all(row)] == [], "old and new pods lived at once"
        assert max(seen) == (2, 0)
        assert bad not in nodes_of(await living(stage, "llm"))
        status = (await job_of(stage, "llm"))["status"]
        assert (status.get("failed"), status.get("succeeded"), status.get("completedIndexes")) == (None,) * 3
        no_trouble(stage)


async def overlaps(stage: RealStage, job: str, old: list[str], seen: list[tuple[int, int]]) -> None:
    """Records repeatedly how many old and new pods have not ended."""
    while True:
        there = await living(stage, job)
        former = sum(1 for pod in there if pod["metadata"]["uid"] in old)
        seen.append((former, len(there) - former))
        await asyncio.sleep(0.02)


async def test_pods_that_never_end_on_a_living_node_are_named_to_a_person(
    control_plane: ControlPlane,
) -> None:
    settings = (*WIDE, "timing.stop_deadline_s=2")
    async with raised(control_plane, nodes=3, settings=settings, agents=0) as stage:
        job = indexed_job("llm", dying="never", pod={"terminationGracePeriodSeconds": 1})
        old = await trained(stage, job)
        await stage.xid_79(old[0]["spec"]["nodeName"])

        recovery = await ended(stage, "llm", "Blocked", "PodsStuck")

        for pod in old:
            where = f"{pod['metadata']['name']} on {pod['spec']['nodeName']}"
            assert where in recovery["status"]["message"]
        assert uids(await pods_of(stage, "llm")) == uids(old), "nothing is started over them, none is forced"
        assert (await job_of(stage, "llm"))["spec"]["suspend"] is True


async def test_an_ended_pod_that_a_finalizer_keeps_holds_nothing_up(control_plane: ControlPlane) -> None:
    job = indexed_job("llm", dying="143")
    job["spec"]["template"]["metadata"]["finalizers"] = ["example.com/keeps-it"]
    async with raised(control_plane, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, job)
        await stage.xid_79(old[0]["spec"]["nodeName"])

        await recovered(stage, "llm", old)

        kept = [p for p in await pods_of(stage, "llm") if p["metadata"]["uid"] in uids(old)]
        assert [p["status"]["phase"] for p in kept] == ["Failed", "Failed"]


# --- what the framework counts ----------------------------------------------------------------------------


async def test_a_failed_rank_is_made_anew_at_once_with_consent_and_otherwise_waits_as_it_is_told(
    control_plane: ControlPlane,
) -> None:
    """One counted failure makes the Job controller wait 10 s."""
    async with raised(control_plane, nodes=4, settings=WIDE, agents=0) as stage:
        waiting = await trained(stage, indexed_job("waits"))
        anew = await trained(stage, indexed_job("anew", annotations=RECREATE))
        await asyncio.sleep(1)  # kubelets write whole seconds; Rekindle ignores faults from before the mode
        before = await job_of(stage, "anew")

        await asyncio.gather(stage.end(waiting[0], exit_code=1), stage.end(anew[0], exit_code=1))
        at_once, told = await asyncio.gather(
            recovered(stage, "anew", anew), ended(stage, "waits", "Resuming", "FrameworkBackoff")
        )
        await recovered(stage, "waits", waiting)

        assert creation_s(at_once, await pods_of(stage, "anew")) < 8
        assert "1 failed pod " in told["status"]["message"]
        after = await job_of(stage, "anew")
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        assert after["metadata"]["annotations"].items() >= RECREATE.items()
        assert after["status"].get("failed") is None
        assert (await job_of(stage, "waits"))["status"]["failed"] == 1
        assert await cordons(stage) == set()
        no_trouble(stage)


async def test_a_job_without_retries_ends_as_terminal_or_is_made_anew_with_consent(
    control_plane: ControlPlane,
) -> None:
    """With backoffLimit 0 one failed pod ends the job permanently, whether Rekindle or the Job controller is
    quicker."""
    async with raised(control_plane, nodes=4, settings=WIDE, agents=0) as stage:
        final = await trained(stage, indexed_job("final", backoffLimit=0, dying="143"))
        anew = await trained(stage, indexed_job("anew", backoffLimit=0, dying="143", annotations=RECREATE))
        await asyncio.sleep(1)

        await asyncio.gather(stage.end(final[0], exit_code=1), stage.end(anew[0], exit_code=1))
        await recovered(stage, "anew", anew)
        recovery = await ended(stage, "final", "Escalated", "TerminalJob")

        assert "BackoffLimitExceeded" in recovery["status"]["message"]
        assert len(await recoveries(stage, "anew")) == 1
        assert (await job_of(stage, "anew"))["spec"]["backoffLimit"] == 0
        assert await cordons(stage) == set()
        no_trouble(stage)


async def test_a_job_that_failed_for_good_before_it_opted_in_is_not_touched(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, indexed_job("llm", backoffLimit=0, labels={}))
        await asyncio.sleep(1)
        await stage.end(old[0], exit_code=1)
        await stage.until("the job Failed", lambda: has(stage, "llm", "Failed"))
        since = control_plane.audit_position()

        opted_in = {"metadata": {"labels": {"rekindle.dev/auto-recovery": "enabled"}}}
        await patched(stage, JOBS, "llm", opted_in)
        await stage.until("a refusal TerminalJob", lambda: refused(stage, "llm", "TerminalJob"))

        assert await recoveries(stage, "llm") == []
        assert writes_to(control_plane, since, JOBS, "llm") == []


async def has(stage: RealStage, job: str, condition: str) -> bool:
    """Whether the Job controller reports this condition."""
    conditions = (await job_of(stage, job)).get("status", {}).get("conditions", [])
    return any((c["type"], c["status"]) == (condition, "True") for c in conditions)


async def refused(stage: RealStage, job: str, reason: str) -> bool:
    return reason in (await refusals(stage, job)).values()


async def test_a_container_that_restarts_in_place_without_steps_costs_no_counted_failure(
    control_plane: ControlPlane,
) -> None:
    settings = (*WIDE, "timing.in_place_grace_s=1")
    async with raised(control_plane, nodes=3, settings=settings, agents=0) as stage:
        old = await trained(stage, indexed_job("llm", pod={"restartPolicy": "OnFailure"}))
        await asyncio.sleep(1)

        await restarts_in_place(stage, old[0])
        recovery = await recovered(stage, "llm", old)

        assert recovery["spec"]["fault"] == "application"
        assert (await job_of(stage, "llm"))["status"].get("failed") is None
        assert await cordons(stage) == set()
        no_trouble(stage)


async def restarts_in_place(stage: RealStage, pod: Any) -> None:
    """The pod's container exits with 1, and the kubelet starts it again in the same pod."""
    at = now().strftime("%Y-%m-%dT%H:%M:%SZ")
    container = {
        "name": "train",
        "image": "none",
        "imageID": "",
        "ready": True,
        "restartCount": 1,
        "state": {"running": {"startedAt": at}},
        "lastState": {"terminated": {"exitCode": 1, "finishedAt": at}},
    }
    body = {"status": {"containerStatuses": [container]}}
    await patched(stage, PODS, pod["metadata"]["name"], body, subresource="status")


@pytest.mark.parametrize("exit_code", ["143", "0"])
async def test_a_pod_that_a_person_deletes_is_a_lost_rank_and_the_whole_gang_starts_again(
    control_plane: ControlPlane, exit_code: str
) -> None:
    """The Job controller counts the pod as failed, as it counts every pod that ends outside a stop."""
    async with raised(control_plane, nodes=3, settings=WIDE, agents=0) as stage:
        job = indexed_job("llm", dying=exit_code, annotations=RECREATE)
        old = await trained(stage, job)
        await asyncio.sleep(1)

        await stage.api.request("DELETE", PODS.path(old[0]["metadata"]["name"], NAMESPACE))
        recovery = await recovered(stage, "llm", old)

        assert recovery["spec"]["fault"] == "host"
        assert (await incident_of(stage, recovery))["status"]["blame"] == "unknown"
        assert await cordons(stage) == set()
        no_trouble(stage)


# --- others who decide ------------------------------------------------------------------------------------


async def test_a_controller_that_flips_the_stop_back_is_named_once_and_not_fought(
    control_plane: ControlPlane,
) -> None:
    async with raised(control_plane, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, indexed_job("llm", dying="143", suspend=False))
        since = control_plane.audit_position()
        healing = asyncio.create_task(heals_itself(stage, "llm"))

        await stage.xid_79(old[0]["spec"]["nodeName"])
        recovery = await ended(stage, "llm", "Escalated", "ForeignOwner")
        await stage.running("llm", 2, but=uids(old))
        await asyncio.sleep(2)  # a fight would continue
        healing.cancel()

        assert "gitops-controller" in recovery["status"]["message"]
        assert writes_to(control_plane, since, JOBS, "llm") == ["patch"] * 2, "the stop, and its mark's end"
        assert len(await recoveries(stage, "llm")) == 1


async def is_unmarked(stage: RealStage, job: str) -> bool:
    return MARK not in (await job_of(stage, job))["metadata"].get("annotations", {})


async def heals_itself(stage: RealStage, job: str) -> None:
    """Writes what its repository says, whenever the job differs and the Job controller has told the job's
    pods to end."""
    while True:
        if (await job_of(stage, job))["spec"]["suspend"] and await has(stage, job, "Suspended"):
            body = {"spec": {"suspend": False}}
            await patched(stage, JOBS, job, body, manager="gitops-controller")
        await asyncio.sleep(0.05)


async def test_a_job_of_kueue_is_refused_and_its_node_is_still_taken_out(control_plane: ControlPlane) -> None:
    async with raised(control_plane, nodes=3, settings=WIDE, agents=0) as stage:
        labels = {"rekindle.dev/auto-recovery": "enabled", "kueue.x-k8s.io/queue-name": "gpus"}
        old = await trained(stage, indexed_job("llm", labels=labels))
        bad, since = old[0]["spec"]["nodeName"], control_plane.audit_position()

        await stage.xid_79(bad)
        await stage.until("a refusal ForeignOwner", lambda: refused(stage, "llm", "ForeignOwner"))
        await stage.until(f"{bad} cordoned", lambda: cordons(stage))

        assert await cordons(stage) == {bad}
        assert writes_to(control_plane, since, JOBS, "llm") == []
        assert await recoveries(stage, "llm") == []
        assert uids(await pods_of(stage, "llm")) == uids(old)


async def test_a_person_who_suspends_a_started_gang_is_obeyed(control_plane: ControlPlane) -> None:
    async with raised(control_plane, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, indexed_job("llm"))
        await stage.xid_79(old[0]["spec"]["nodeName"])
        await stage.running("llm", 2, but=uids(old))
        await asyncio.sleep(AUDIT_LAG_S)
        since = control_plane.audit_position()

        await patched(stage, JOBS, "llm", {"spec": {"suspend": True}}, manager="kubectl-edit")
        recovery = await ended(stage, "llm", "Escalated", "Held")

        assert "kubectl-edit" in recovery["status"]["message"]
        await stage.until("the start's mark is taken back", lambda: is_unmarked(stage, "llm"))
        await asyncio.sleep(AUDIT_LAG_S)
        assert writes_to(control_plane, since, JOBS, "llm") == ["patch"], "only the mark's end"
        assert (await job_of(stage, "llm"))["spec"]["suspend"] is True


async def test_ranks_that_a_successful_job_deletes_are_no_lost_ranks(control_plane: ControlPlane) -> None:
    """The successPolicy makes the leader's success the Job's success. The other ranks take a while to end."""
    settings = (*WIDE, "timing.deleted_settle_s=0.1")
    async with raised(control_plane, nodes=3, settings=settings, agents=0) as stage:
        policy = {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}
        ranks = await trained(stage, indexed_job("llm", dying="143", successPolicy=policy))
        index = "batch.kubernetes.io/job-completion-index"
        (leader,) = [pod for pod in ranks if pod["metadata"]["annotations"][index] == "0"]

        await stage.end(leader, exit_code=0)
        await stage.until("Complete", lambda: has(stage, "llm", "Complete"))

        assert await recoveries(stage, "llm") == []
        no_trouble(stage)


async def test_a_job_that_is_deleted_during_its_recovery_ends_it(control_plane: ControlPlane) -> None:
    async with raised(control_plane, nodes=3, settings=WIDE, agents=0) as stage:
        old = await trained(stage, indexed_job("llm", dying="never"))
        await stage.xid_79(old[0]["spec"]["nodeName"])
        await ended(stage, "llm", "Stopping")

        body = {"propagationPolicy": "Background"}
        await stage.api.request("DELETE", JOBS.path("llm", NAMESPACE), body=body)

        await ended(stage, "llm", "Failed", "JobGone")


# --- where the gang may run -------------------------------------------------------------------------------


async def test_gangs_that_share_a_bad_node_both_leave_it_also_one_that_tolerates_everything(
    control_plane: ControlPlane,
) -> None:
    """Affinity keeps a gang that tolerates every taint off the node, in addition to the nodes that the job's
    owner excludes."""
    async with raised(control_plane, nodes=3, settings=WIDE, agents=0) as stage:
        excluded = [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n3"]}]
        terms = {"nodeSelectorTerms": [{"matchExpressions": excluded}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        pod = {"tolerations": [{"operator": "Exists"}], "affinity": affinity}
        spread = await trained(stage, indexed_job("tolerant", gpus=5, pod=pod))
        other = await trained(stage, indexed_job("other", gpus=3, pod={"affinity": affinity}))
        bad, good = "n1", "n2"
        assert nodes_of(spread) == nodes_of(other) == {bad, good}

        # One node has room for all ranks once the bad node is out of service.
        room = {"status": {"allocatable": {"nvidia.com/gpu": "16"}, "capacity": {"nvidia.com/gpu": "16"}}}
        path = NODES.path(good, subresource="status")
        await stage.api.request("PATCH", path, body=room, content_type="application/merge-patch+json")
        await stage.xid_79(bad)
        await asyncio.gather(recovered(stage, "tolerant", spread), recovered(stage, "other", other))

        for name, hosts in (("tolerant", [bad, "n3"]), ("other", ["n3"])):
            assert nodes_of(await living(stage, name)) == {good}
            template = (await job_of(stage, name))["spec"]["template"]["spec"]
            required = template["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            (expression,) = required["nodeSelectorTerms"][0]["matchExpressions"]
            assert expression["values"] == hosts
        assert await cordons(stage) == {bad}
        no_trouble(stage)
