"""Makes one faulty GPU under one job: the objects that the stories of test_why_*.py describe."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from detectors.wire.contract import (
    Coverage,
    CoverageState,
    Fault,
    Finding,
    NodeHealth,
    NodeHealthStatus,
    ObjectMeta,
    Origin,
    Remedy,
    Severity,
    Source,
    Subject,
    SubjectKind,
)
from detectors.wire.training import Edge, PodProgress
from recover.api import (
    ActionRecord,
    Blame,
    Cause,
    CheckpointChoice,
    Evidence,
    GangRef,
    Incident,
    IncidentSpec,
    IncidentStatus,
    Outcome,
    Phase,
    PhaseTime,
    Recovery,
    RecoverySpec,
    RecoveryStatus,
    RejectedCheckpoint,
)
from recover.api.reasons import Reason
from recover.k8s.kinds import JOBS
from recover.model import Gang, Node, Quarantine
from recover.policy.consent import OptIn
from recover.stories.job_state import Job
from recover.stories.why_node import why_node
from recover.stories.words import Line, Story, Tone
from tests.facts import missing

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
FAULT_AT = NOW - timedelta(minutes=3)
LLM = GangRef(api_version="batch/v1", kind="Job", namespace="team", name="llm", uid="uid-llm")


def job(consent: OptIn = OptIn.ENABLED, ref: GangRef = LLM) -> Job:
    return Job(ref=ref, gang=Gang(ref=ref, resource=JOBS, version="1", size=4), consent=consent)


def incident(*actions: ActionRecord, **changes: Any) -> Incident:
    status = IncidentStatus(
        summary="node-3: GPU 0000:3b:00 fell off the bus",
        blame=Blame.NODE,
        blamed_node="node-3",
        evidence=[
            Evidence(
                at=FAULT_AT,
                origin=Origin.KERNEL,
                code="xid-79",
                node="node-3",
                text="NVRM: Xid (PCI:0000:3b:00): 79",
            )
        ],
        victims=[LLM],
        actions=list(actions),
    )
    return Incident(
        metadata=ObjectMeta(name="node-3-device-lost-1a2b"),
        spec=IncidentSpec(fault=Fault.DEVICE_LOST, node="node-3", detected_at=FAULT_AT),
        status=msgspec.structs.replace(status, **changes),
    )


def action(
    outcome: Outcome, act: str = "restart-gang", reason: str = "", target: str = str(LLM)
) -> ActionRecord:
    return ActionRecord(at=FAULT_AT, action=act, target=target, outcome=outcome, reason=reason)


def refused(reason: Reason) -> ActionRecord:
    return action(Outcome.REFUSED, reason=reason)


def recovery(phase: Phase = Phase.SUCCEEDED, *, number: int = 1, **changes: Any) -> Recovery:
    order = [Phase.PLANNED, Phase.STOPPING, Phase.CHOOSING, Phase.RESUMING, Phase.VERIFYING]
    passed = [*order[: order.index(phase)], phase] if phase in order else [*order, phase]
    status = RecoveryStatus(
        phase=phase,
        causes=[
            Cause(
                incident="node-3-device-lost-1a2b",
                fault=Fault.DEVICE_LOST,
                attempt=1,
                at=FAULT_AT,
                node="node-3",
                summary="node-3: GPU 0000:3b:00 fell off the bus",
            )
        ],
        avoid_nodes=["node-3"],
        phases=[
            PhaseTime(phase=p, attempt=1, at=FAULT_AT + timedelta(seconds=2 * i))
            for i, p in enumerate(passed)
        ],
    )
    return Recovery(
        metadata=ObjectMeta(name=f"job-llm-{number}", namespace="team"),
        spec=RecoverySpec(
            gang=LLM,
            number=number,
            incident="node-3-device-lost-1a2b",
            fault=Fault.DEVICE_LOST,
            detected_at=FAULT_AT + timedelta(seconds=number),
            nodes=["node-1", "node-3"],
        ),
        status=msgspec.structs.replace(status, **changes),
    )


VERIFIED = CheckpointChoice(
    attempt=1,
    verified=True,
    step=40,
    path="/ckpt/step-40",
    format="torch-dcp",
    rejected=[RejectedCheckpoint(step=50, path="/ckpt/step-50", reason="no commit marker")],
    scan_s=0.4,
    idle_gpu_s=6.4,
    digests="digests of 5 GB are right",
    repaired=["'step-50' was moved to rekindle-set-aside-r-1"],
    tracker="latest says 'step-50', so the framework by itself loads that one",
)


def node(name: str = "node-3", *, quarantined: bool = False, **changes: Any) -> Node:
    quarantine = None
    if quarantined:
        quarantine = Quarantine(
            incident="node-3-device-lost-1a2b", fault="device-lost", at=FAULT_AT, cordoned=True
        )
    plain = Node(name=name, uid=f"uid-{name}", version="1", is_accelerated=True, unschedulable=quarantined)
    return msgspec.structs.replace(plain, quarantine=quarantine, **changes)


def finding(**changes: Any) -> Finding:
    seen = Finding(
        id="b00t-kmsg-7",
        code="xid-79",
        fault=Fault.DEVICE_LOST,
        origin=Origin.KERNEL,
        severity=Severity.FATAL,
        subject=Subject(kind=SubjectKind.DEVICE, pci="0000:3b:00.0"),
        boot_id="b00t",
        first_seen=FAULT_AT,
        last_seen=FAULT_AT,
        remedy=Remedy.REBOOT_NODE,
        evidence="NVRM: Xid (PCI:0000:3b:00): 79",
    )
    return msgspec.structs.replace(seen, **changes)


def health(
    *findings: Finding, name: str = "node-3", nvml: CoverageState = CoverageState.COVERED
) -> NodeHealth:
    since = NOW - timedelta(hours=5)
    why = "driver not loaded" if nvml is CoverageState.BLIND else ""
    return NodeHealth(
        metadata=ObjectMeta(name=name),
        status=NodeHealthStatus(
            boot_id="b00t",
            findings=list(findings),
            coverage=[
                Coverage(source=Source.KMSG, state=CoverageState.COVERED, since=since),
                Coverage(source=Source.NVML, state=nvml, since=since, why=why),
            ],
            pods=[
                PodProgress(
                    uid="p0",
                    namespace="team",
                    name="llm-0",
                    edge=Edge.STEPPING,
                    at=NOW,
                    last_step=41,
                    median_step_s=0.5,
                )
            ],
        ),
    )


def told(story: Story) -> str:
    """Returns the whole story as one text."""
    texts = [story.subject, story.verdict.text]
    for section in story.sections:
        texts += [f"# {section.title}", *(line.text for line in section.lines)]
    return "\n".join([*texts, *(command.run for command in story.commands)])


def lines(story: Story, *facts: str | int) -> list[Line]:
    """Returns the lines of the sections that contain all of these facts."""
    every = (line for section in story.sections for line in section.lines)
    return [line for line in every if not missing(line.text, *facts)]


def tones(story: Story, *facts: str | int) -> list[Tone]:
    """Returns the tones of the lines that contain all of these facts."""
    return [line.tone for line in lines(story, *facts)]


_NEXT_STEPS = why_node("node-3", node(), None, [incident(refused(Reason.HELD))], NOW).sections[-1].title


def next_steps(story: Story) -> str:
    """Returns the text of the last section, which has the proposed steps. Empty if the story proposes
    nothing."""
    return "\n".join(line.text for s in story.sections if s.title == _NEXT_STEPS for line in s.lines)
