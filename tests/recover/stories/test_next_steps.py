"""Tests the steps that `why` proposes, for each reason and each state that a job or node may be in.

No proposal has a gap to fill in. Each command is one that kubectl or rekindle accepts. No command
contradicts the known state: `why` proposes no hold for a dead node, no cordon for a deleted node, and no
annotation for a deleted job.
"""

from __future__ import annotations

import re
import shlex
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Fault, NodeHealth, ObjectMeta
from recover.api import (
    Act,
    ActionRecord,
    Condition,
    GangRef,
    Incident,
    IncidentPhase,
    IncidentSpec,
    IncidentStatus,
    Outcome,
    Phase,
    Recovery,
)
from recover.api.reasons import EXPLANATIONS, Reason
from recover.api.repair_state import Repair, RepairPhase
from recover.k8s.kinds import JOBS
from recover.model import Gang, NamespaceView, Node, Pod, PodPhase, Terminal
from recover.policy.consent import AUTO_RECOVERY, OptIn
from recover.stories.absence import Absence
from recover.stories.around import Around
from recover.stories.job_state import Job
from recover.stories.node_steps import acted_on_again
from recover.stories.overview import StatusFacts, overview
from recover.stories.why_job import why_job
from recover.stories.why_node import why_node
from recover.stories.words import Story, Tone
from recover.stories.words import record as record_lines
from tests.facts import missing
from tests.recover.stories.why_cases import (
    FAULT_AT,
    LLM,
    NOW,
    VERIFIED,
    action,
    finding,
    health,
    incident,
    lines,
    next_steps,
    node,
    recovery,
    told,
    tones,
)

TORCH = GangRef(api_version="kubeflow.org/v1", kind="PyTorchJob", namespace="team", name="llm", uid="uid-llm")
HOLD = {"rekindle.dev/hold": "true"}
SAID = "the API server's own words"


def a_job(ref: GangRef = LLM, consent: OptIn | None = OptIn.ENABLED, **changes: Any) -> Job:
    gang = Gang(ref=ref, resource=JOBS, version="1", size=4)
    return Job(ref=ref, gang=msgspec.structs.replace(gang, **changes), consent=consent)


A_JOB = {
    "enabled": a_job(),
    "disabled": a_job(consent=OptIn.DISABLED),
    "disabled by its label": a_job(consent=OptIn.DISABLED, labels={AUTO_RECOVERY: "disabled"}),
    "observed": a_job(consent=OptIn.OBSERVE, annotations={AUTO_RECOVERY: "observe"}),
    "of a namespace that may not be read": a_job(consent=None),
    "suspended": a_job(suspended=True),
    "a suspended PyTorchJob": a_job(TORCH, suspended=True),
    "held": a_job(annotations=HOLD),
    "to be made again": a_job(annotations={"rekindle.dev/on-terminal": "recreate"}),
    "failed for good": a_job(terminal=Terminal(succeeded=False, reason="BackoffLimitExceeded")),
    "completed": a_job(terminal=Terminal(succeeded=True)),
    "with its checkpoints' place": a_job(annotations={"rekindle.dev/checkpoint": "/ckpt"}),
    "gone": Job(ref=LLM),
    "of a kind that is gone": Job(ref=TORCH, absence=Absence.NOT_SERVED),
    "that may not be read": Job(ref=LLM, absence=Absence.FORBIDDEN, consent=None),
}
A_NODE: dict[str, Node | None] = {
    "in service": node(),
    "dead": node(ready=False, ready_since=FAULT_AT),
    "cordoned by a person": node(unschedulable=True),
    "quarantined": node(quarantined=True),
    "quarantined and dead": node(quarantined=True, ready=False),
    "held": node(annotations=HOLD),
    "not managed": node(labels={"rekindle.dev/managed": "false"}),
    "gone": None,
}
PODS = (
    Pod(namespace="team", name="llm-0", uid="p0", version="1", owner_uid="uid-llm", phase=PodPhase.RUNNING),
    Pod(namespace="team", name="llm-1", uid="p1", version="1", owner_uid="uid-llm", deleting_since=FAULT_AT),
)


def around(at: Node | None, *, hidden: bool = False) -> Around:
    others = {"node-1": node("node-1")}
    return Around(
        nodes={} if hidden else others | ({at.name: at} if at is not None else {}),
        namespaces={"team": NamespaceView(name="team")},
        pods=() if hidden else PODS,
        hidden={"nodes", "namespaces", "pods"} if hidden else (),
    )


def record(act: str, target: str, reason: Reason) -> ActionRecord:
    would = Outcome.WOULD if reason is Reason.OBSERVE_MODE else Outcome.REFUSED
    return msgspec.structs.replace(action(would, act, reason, target), message=SAID)


def refused(reason: Reason, ref: GangRef) -> Incident:
    acts = [
        record("quarantine-node", "node-3", reason),
        record("repair-node", "node-3", reason),
        record("lift-spare", "node-3", reason),
        record("restart-gang", str(ref), reason),
        record("apply-recipe", str(ref), reason),
    ]
    repair = Repair(phase=RepairPhase.HANDED_OVER, reason=reason, message=SAID)
    return incident(*acts, victims=[ref], repair=repair)


def ended(reason: Reason, ref: GangRef, phase: Phase) -> Recovery:
    condition = Condition(type="Resumed", status="False", reason=reason, last_transition_time=NOW)
    made = recovery(phase, reason=reason, message=SAID, conditions=[condition], checkpoint=VERIFIED)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, gang=ref))


def every_story(reason: Reason) -> list[tuple[str, Story, Job | None, Node | None]]:
    """Returns the stories of jobs and of nodes in every state, after a refusal and after a recovery."""
    stories: list[tuple[str, Story, Job | None, Node | None]] = []
    for where, at in A_NODE.items():
        for hidden in (False, True):
            if hidden and at is not None:
                continue
            beside = around(at, hidden=hidden)
            for what, one in A_JOB.items():
                called = f"job {what}, node {where}{' hidden' if hidden else ''}"
                no = why_job(one, [], [refused(reason, one.ref)], NOW, beside)
                stories.append((f"{called}, refused", no, one, None))
                for phase in (Phase.BLOCKED, Phase.ESCALATED, Phase.SUCCEEDED):
                    story = why_job(one, [ended(reason, one.ref, phase)], [], NOW, beside)
                    stories.append((f"{called}, {phase}", story, one, None))
        for sick in (health(), health(finding()), None):
            told_of = why_node("node-3", at, sick, [refused(reason, LLM)], NOW)
            stories.append((f"node {where}, {'blind' if sick is None else 'seen'}", told_of, None, at))
    return stories


# --- the proposed steps -------------------------------------------------------------------------------------

_GAP = re.compile(r"\b(NODE|JOB|NAME|NAMESPACE|POD|PATH|KIND)\b|<[a-z]")
_NAME = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
_KIND = r"(job|pytorchjob|paddlejob|jobset|node|namespace|pod|pods|recovery|incident|rekindle)"
_VERBS = {
    "cordon": rf"{_NAME}",
    "uncordon": rf"{_NAME}",
    "annotate": rf"{_KIND}( -n {_NAME})? {_NAME}( [a-z0-9./-]+(=\S+|-))+( --overwrite)?",
    "label": rf"{_KIND}( -n {_NAME})? {_NAME}( [a-z0-9./-]+(=\S+|-))+( --overwrite)?",
    "taint": rf"node {_NAME} [a-z0-9./-]+((=\S*)?:(NoSchedule|NoExecute|PreferNoSchedule)|-)",
    "patch": rf"{_KIND} -n {_NAME} {_NAME} --type merge -p \{{\S+\}}",
    "describe": rf"{_KIND}( -n {_NAME})? {_NAME}",
    "get": rf"(pods( -n {_NAME}| -A -o wide --field-selector spec\.nodeName={_NAME})"
    rf"|{_KIND} -n {_NAME} {_NAME} -o jsonpath=\{{\.metadata\.finalizers\}})",
    "logs": rf"-n {_NAME} {_NAME}",
    "delete": rf"recovery -n {_NAME} {_NAME}",
}
_OURS = {
    "resume": "",
    **dict.fromkeys(("why", "hold", "release"), rf"(node/{_NAME}|-n {_NAME} {_KIND}/{_NAME})"),
    "doctor": rf"-n {_NAME} {_KIND}/{_NAME}",
    "status": "",
}


def commands(story: Story) -> list[str]:
    """Returns the proposed commands. In the text, commands are in backticks."""
    text = told(story)
    loose = re.sub(r"`[^`]*`", "", "\n".join(line.text for s in story.sections for line in s.lines))
    assert not re.search(r"\b(kubectl|rekindle) [a-z]+ ", loose), f"a command without backticks: {loose}"
    quoted = [one for one in re.findall(r"`([^`]*)`", text) if one.startswith(("kubectl ", "rekindle "))]
    return [*quoted, *(command.run for command in story.commands)]


def parses(command: str) -> bool:
    program, verb, *rest = shlex.split(command)
    grammar = _VERBS if program == "kubectl" else _OURS
    return verb in grammar and re.fullmatch(grammar[verb], " ".join(rest)) is not None


@pytest.mark.parametrize("reason", list(Reason))
def test_nothing_that_is_proposed_has_a_gap_and_each_command_is_one(reason: Reason) -> None:
    for called, story, _, _ in every_story(reason):
        said = told(story).replace("REKINDLE_RESUME_FROM", "")
        assert not _GAP.search(said), f"{called}: {_GAP.search(said)}\n{said}"
        for command in commands(story):
            assert parses(command), f"{called}: {command}"


def test_a_promotion_is_proposed_in_the_namespace_of_the_release_only_if_it_is_known() -> None:
    observed = refused(Reason.OBSERVE_MODE, LLM)
    for release, known in (("ops", True), ("", False)):
        here = msgspec.structs.replace(around(node()), release=release)
        of_job = next_steps(why_job(a_job(), [], [observed], NOW, here))
        of_node = next_steps(why_node("node-3", node(), health(), [observed], NOW, Around(release=release)))
        for said in (of_job, of_node):
            assert ("helm upgrade rekindle charts/rekindle -n ops" in said) is known
            assert "mode=recover" in said
            assert "rekindle-system" not in said


@pytest.mark.parametrize("reason", list(Reason))
def test_nothing_that_is_proposed_contradicts_what_is_known(reason: Reason) -> None:
    for called, story, job, at in every_story(reason):
        proposed = commands(story)
        if job is not None and job.is_gone:
            on_it = [c for c in proposed if c.startswith("kubectl") and " -n team llm" in c]
            assert not on_it, f"{called}: {on_it} of a job that is gone"
        if job is not None and job.consent is OptIn.ENABLED:
            assert not any(AUTO_RECOVERY in c for c in proposed), called
        if job is None and at is None:
            assert not any(c.startswith(("kubectl cordon", "kubectl annotate node")) for c in proposed), (
                called
            )
        if at is not None and (at.unschedulable or not at.ready):
            assert not any("rekindle hold" in c for c in proposed), f"{called}: hold of a dead node"
        if at is not None and at.unschedulable:
            assert "kubectl cordon node-3" not in proposed, f"{called}: it is cordoned already"
        if at is not None and not at.unschedulable:
            assert "kubectl uncordon node-3" not in proposed, f"{called}: it is not cordoned"


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_words_for_what_was_seen_why_and_what_next(reason: Reason) -> None:
    meaning, next_step = EXPLANATIONS[reason].meaning, EXPLANATIONS[reason].next_step
    assert meaning.endswith(".")
    assert next_step.endswith(".")
    assert not re.search(r"\b(NODE|JOB|NAME)\b", next_step)

    refusal = told(why_job(a_job(), [], [refused(reason, LLM)], NOW, around(node())))
    waiting = told(why_job(a_job(), [ended(reason, LLM, Phase.BLOCKED)], [], NOW, around(node())))

    assert ("the API server's own words" if reason is Reason.STALE_EVIDENCE else meaning) in refusal
    assert meaning in waiting
    assert SAID in refusal
    assert SAID in waiting


# --- cases that were wrong ----------------------------------------------------------------------------------


def test_after_observe_a_fault_from_before_is_named_with_what_makes_rekindle_act() -> None:
    stale = incident(record("quarantine-node", "node-3", Reason.STALE_EVIDENCE))

    of_node = next_steps(why_node("node-3", node(), health(finding()), [stale], NOW))
    of_job = next_steps(why_job(a_job(), [], [stale], NOW, around(node())))

    assert of_node == of_job
    what_makes_it_act = acted_on_again(stale, "node-3")
    assert what_makes_it_act in of_node
    assert not missing(what_makes_it_act, "xid-79", "node-3", "2026-11-21 09:57:00")
    assert "`kubectl cordon node-3`" in of_node
    cordoned = next_steps(why_node("node-3", node(unschedulable=True), health(finding()), [stale], NOW))
    assert "`kubectl cordon" not in cordoned
    assert len(cordoned.splitlines()) == len(of_node.splitlines()), "that it is cordoned is told"


def test_after_observe_the_steps_for_a_held_node_name_the_command_that_ends_the_hold() -> None:
    stale = incident(record("quarantine-node", "node-3", Reason.STALE_EVIDENCE))

    of_held = next_steps(why_node("node-3", node(annotations=HOLD), health(finding()), [stale], NOW))
    of_free = next_steps(why_node("node-3", node(), health(finding()), [stale], NOW))

    assert "`rekindle release node/node-3` ends the hold" in of_held
    assert "rekindle release" not in of_free


@pytest.mark.parametrize(
    ("at", "report", "run"),
    [
        (node(), health(), "rekindle hold node/node-3"),
        (node(), health(finding()), "kubectl cordon node-3"),
        (node(ready=False), health(finding()), "kubectl describe node node-3"),
        (node(ready=False), None, "kubectl describe node node-3"),
        (node(unschedulable=True), health(finding()), "kubectl uncordon node-3"),
        (node(quarantined=True), health(finding()), "kubectl uncordon node-3"),
        (
            node(annotations=HOLD),
            health(finding()),
            "rekindle release node/node-3",
        ),
    ],
)
def test_the_command_for_a_node_fits_its_state(at: Node, report: NodeHealth | None, run: str) -> None:
    proposed = [c.run for c in why_node("node-3", at, report, [], NOW).commands]

    assert proposed == [run, "rekindle status"]


def test_a_job_whose_containers_nobody_can_edit_is_to_be_submitted_again() -> None:
    def steps(ref: GangRef) -> str:
        stopped = ended(Reason.KNOWN_ISSUE, ref, Phase.ESCALATED)
        return next_steps(why_job(a_job(ref, suspended=True), [stopped], [], NOW))

    assert "submit it again" in steps(LLM)
    assert "kubectl patch" not in steps(LLM), "the job would start as it was"
    assert "in the job's template" in steps(TORCH)


def test_a_label_that_disables_is_set_by_a_label() -> None:
    job = A_JOB["disabled by its label"]

    proposed = commands(why_job(job, [], [refused(Reason.NOT_OPTED_IN, LLM)], NOW, around(node())))

    assert "kubectl label job -n team llm rekindle.dev/auto-recovery=enabled --overwrite" in proposed
    assert not any("annotate job -n team llm rekindle.dev/auto-recovery" in c for c in proposed)


def test_a_held_namespace_and_a_suspended_job_are_told_apart() -> None:
    held = msgspec.structs.replace(
        around(node()), namespaces={"team": NamespaceView(name="team", annotations=HOLD)}
    )
    story = why_job(a_job(), [], [refused(Reason.HELD, LLM)], NOW, held)
    suspended = why_job(a_job(TORCH, suspended=True), [], [refused(Reason.HELD, TORCH)], NOW, around(node()))

    unhold = "rekindle.dev/hold- rekindle.dev/hold-until- rekindle.dev/hold-reason-"
    assert f"`kubectl annotate namespace team {unhold}`" in next_steps(story)
    assert unhold not in next_steps(suspended)
    start = (
        """kubectl patch pytorchjob -n team llm --type merge -p '{"spec":{"runPolicy":{"suspend":false}}}'"""
    )
    assert start in commands(suspended)


def test_a_node_that_must_be_fenced_is_named() -> None:
    made = ended(Reason.NEEDS_FENCING_PROOF, LLM, Phase.BLOCKED)

    said = next_steps(why_job(a_job(), [made], [], NOW, around(node(ready=False))))

    assert "`kubectl taint node node-3 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute`" in said


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        ("fleet-brake", "FleetBrake"),
        ("quarantine-limit", "BudgetExhausted"),
        ("paused", "Paused"),
        ("stale-evidence", "StaleEvidence"),
    ],
)
def test_a_node_of_an_incident_about_many_nodes_is_told_of_the_cause(cause: str, reason: str) -> None:
    brake = Incident(
        metadata=ObjectMeta(name=f"{cause}-device-lost-1"),
        spec=IncidentSpec(fault=Fault.DEVICE_LOST, detected_at=FAULT_AT),
        status=IncidentStatus(summary="device-lost on 9 nodes", members=["node-3", "node-4"]),
    )

    story = why_node("node-3", node(), health(finding()), [brake], NOW)
    status = overview(StatusFacts(nodes={"node-3": node()}, incidents=[brake]), NOW)

    assert tones(story, "node-3", reason, "3 min") == [Tone.BAD]
    (blame,) = lines(story, 2)
    assert missing(blame.text, "node-3") == ["node-3"]
    assert "`kubectl cordon node-3`" in next_steps(story)
    rows = [row for table in status.tables for row in table.rows]
    assert [row for row in rows if "node-3, node-4" in row]
    assert all("no open Incident" not in cell for row in rows for cell in row)


def test_of_a_closed_incident_nothing_is_left_to_do() -> None:
    old = refused(Reason.STALE_EVIDENCE, LLM)
    status = msgspec.structs.replace(
        old.status, phase=IncidentPhase.CLOSED, closed_at=NOW - timedelta(hours=1), repair=None
    )
    closed = msgspec.structs.replace(old, status=status)

    assert next_steps(why_job(a_job(), [], [closed], NOW, around(node()))) == ""
    assert next_steps(why_node("node-3", node(), health(), [closed], NOW)) == ""


def test_a_refused_write_is_told_in_the_api_servers_words_with_who_must_let_it_pass() -> None:
    story = why_node("node-3", node(), health(finding()), [refused(Reason.WRITE_REFUSED, LLM)], NOW)

    assert not missing(next_steps(story), SAID, "rekindle-controller")


@pytest.mark.parametrize("act", Act)
def test_each_action_has_words(act: Act) -> None:
    one = ActionRecord(at=NOW, action=act, target="n1", outcome=Outcome.REFUSED, reason=Reason.HELD)

    head, *_ = record_lines(one, NOW)
    assert str(act) not in head.text
