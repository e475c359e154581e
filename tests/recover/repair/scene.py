"""Plays the repair of a node with a quarantined fault step by step. Events of an agent, a Job's pod, a
kubelet and people come from the test, and the writes in answer come from the production decisions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from detectors.wire.contract import Fault, Remedy, Severity
from detectors.wire.step_report import Check, Outcome, ValidationReport, encode
from recover.api import Incident
from recover.api.marks import REPAIR_OF
from recover.api.repair_state import Repair, RepairPhase, StepKind
from recover.model import Bystander, Container, Pod, PodPhase, Terminal
from recover.model.actions import Ask, Create, Delete, Patch, Plan
from recover.model.modes import Mode
from recover.policy.settings import Webhook
from recover.repair.mend import repair
from recover.repair.outside import Means
from recover.triage.plan import plan
from tests.acting import apply
from tests.builders import Worlds, cluster, gang

__all__ = [
    "GOOD",
    "NEW_BOOT",
    "Scene",
    "again",
    "broken",
    "hooked",
    "pending",
    "rebooting",
    "report",
    "says",
]

NEW_BOOT = "99999999-2222-3333-4444-555555555555"
SYSTEM = "rekindle-system"
MEANS = Means({kind: {"spec": {"containers": [{"name": str(kind)}]}} for kind in StepKind})


def report(**outcomes: str) -> ValidationReport:
    """Returns a report, for example of `report(devices="passed", nccl="not-run")`. A `_` in a name stands
    for a `-`."""
    told = {name.replace("_", "-"): Outcome(value) for name, value in outcomes.items()}
    return ValidationReport(checks=tuple(Check(name=n, outcome=o, message="seen") for n, o in told.items()))


GOOD = report(devices="passed", kernel_log="passed", nccl="not-run")


class Scene:
    """A world whose broken node is `n1`. The object is mutable on purpose."""

    def __init__(self, world: Worlds) -> None:
        self.world = world
        self.means = MEANS
        self.clock_off_s = 0.0
        """Seconds by which the clock of n1 is ahead of ours."""

    @property
    def incident(self) -> Incident:
        """The newest Incident of n1."""
        about = [i for i in self.world.incidents.values() if i.spec.node == "n1"]
        return max(about, key=lambda i: i.spec.detected_at)

    @property
    def repair(self) -> Repair:
        found = self.incident.status.repair
        assert found is not None, "no repair has begun"
        return found

    def triage(self) -> None:
        apply(self.world, plan(self.world.world(), self.world.settings, self.world.now))

    def look(self) -> Plan:
        """Decides and writes nothing."""
        return repair(self.world.world(), self.world.settings, self.means, self.world.now)

    def step(self) -> list[str]:
        """Runs one reconcile pass of the repair loop, and applies its plan. Returns what it wrote, without
        Events."""
        found = self.look()
        apply(self.world, found)
        return [a.what for a in found.actions if isinstance(a, Create | Patch | Delete | Ask)]

    def settle(self) -> list[str]:
        """Runs reconcile passes until one writes nothing. Returns all writes in order."""
        wrote: list[str] = []
        for _ in range(12):
            found = self.step()
            if not found:
                return wrote
            wrote += found
        raise AssertionError(f"no end: {wrote}")

    # --- events from outside -------------------------------------------------------------------------------

    def agent_lets_go(self) -> Scene:
        step = self.repair.step
        assert step is not None
        return self._health(hands_off=step.job)

    def job_ends(self, *, good: bool = True, says: ValidationReport | str = "") -> Scene:
        """Ends the Job of the step under way, and the Job's pod."""
        step = self.repair.step
        assert step is not None
        assert step.job in self.world.repair_jobs, "its Job was not made"
        job = self.world.repair_jobs[step.job]
        terminal = Terminal(succeeded=good, reason="" if good else "BackoffLimitExceeded", message="")
        self.world.repair_jobs[step.job] = msgspec.structs.replace(job, terminal=terminal)
        message = encode(says).decode() if isinstance(says, ValidationReport) else says
        at = self.world.now + timedelta(seconds=self.clock_off_s)
        code = 0 if good else 1
        ended = Container(name=step.kind, running=False, exit_code=code, message=message, finished_at=at)
        self.world.pods[job.ref.uid] = {
            f"{step.job}-uid": Pod(
                namespace=SYSTEM,
                name=f"{step.job}-x",
                uid=f"{step.job}-uid",
                version="1",
                owner_uid=job.ref.uid,
                owner_kind="Job",
                node="n1",
                labels={REPAIR_OF: job.labels[REPAIR_OF]},
                phase=PodPhase.SUCCEEDED if good else PodPhase.FAILED,
                containers=(ended,),
            )
        }
        return self

    def node_boots(self, boot_id: str = NEW_BOOT, *, agent: bool = True) -> Scene:
        """Boots the node. Its agent reports from the new boot, without findings."""
        self.world.change_node("n1", boot_id=boot_id, ready=True, ready_since=self.world.now)
        return self._health(boot_id=boot_id, findings=[]) if agent else self

    def _health(self, **changes: object) -> Scene:
        health = self.world.health["n1"]
        status = msgspec.structs.replace(health.status, **changes)
        self.world.health["n1"] = msgspec.structs.replace(health, status=status)
        return self

    def bystander(self, name: str = "web-0") -> Scene:
        """Adds a pod without accelerators on the node."""
        pod = Bystander("shop", name, f"{name}-uid", "n1")
        self.world.bystanders.setdefault("n1", {})[pod.uid] = pod
        return self

    def occupied(self, *, owner: str = "ReplicaSet") -> Scene:
        """Adds a pod that belongs to no gang and occupies an accelerator of the node."""
        pod = Pod("ml", "notebook", "notebook-uid", "1", "x", owner, "n1", PodPhase.RUNNING, accelerators=1)
        self.world.pods["x"] = {pod.uid: pod}
        return self

    def bystander_leaves(self) -> Scene:
        self.world.bystanders.clear()
        return self

    def later(self, seconds: float) -> Scene:
        self.world.later(seconds)
        return self

    def annotates(self, **annotations: str) -> Scene:
        told = {f"rekindle.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
        self.world.change_node("n1", annotations=told)
        return self

    def allows(self, mode: Mode) -> Scene:
        """Sets the mode of the settings from now on."""
        self.world.mode = mode
        return self

    def limits(self, **changes: object) -> Scene:
        settings = self.world.settings
        rules = msgspec.structs.replace(settings.repair, **changes)
        self.world.settings = msgspec.structs.replace(settings, repair=rules)
        return self

    def repaired(self) -> Scene:
        """Plays the repair through reset or reboot, and validation, until the node is returned to service."""
        self.settle()
        for _ in range(4):
            step = self.repair.step
            if step is None:
                return self
            match step.kind:
                case StepKind.RESET:
                    self.agent_lets_go().settle()
                    self.job_ends()
                case StepKind.REBOOT:
                    self.node_boots()
                case StepKind.VALIDATE:
                    self.job_ends(says=GOOD)
            self.settle()
        raise AssertionError(f"not returned: {self.repair}")


def broken(
    *,
    remedy: Remedy = Remedy.RESET_DEVICE,
    fault: Fault = Fault.DEVICE_RESET,
    severity: Severity = Severity.FATAL,
    nodes: int = 40,
    labels: Mapping[str, str] = {},
) -> Scene:
    """Returns a scene in which n1 has shown a fault, and triage has quarantined n1."""
    world = cluster(nodes, mode=Mode.REPAIR)
    world.change_node("n1", labels=labels)
    scene = Scene(world)
    world.finding(on="n1", fault=fault, remedy=remedy, severity=severity)
    scene.triage()
    assert world.nodes["n1"].quarantine is not None
    return scene


def rebooting() -> Scene:
    """Returns a scene in which the repair has requested a reboot of n1."""
    scene = broken(remedy=Remedy.REBOOT_NODE)
    scene.settle()
    assert scene.repair.phase is RepairPhase.REBOOTING
    return scene


def pending(*, opted_in: bool = True) -> Scene:
    """Returns a scene with a contained fault on a node on which a gang trains."""
    scene = broken(fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)
    scene.world.running(gang(ranks=4, opted_in=opted_in))
    return scene


def hooked(scene: Scene) -> Scene:
    """Makes the repair request reboots through a webhook."""
    return scene.limits(webhook=Webhook(url="https://bmc.example/reboot"))


def says(scene: Scene) -> tuple[RepairPhase, str]:
    return scene.repair.phase, scene.repair.reason


def again(scene: Scene, *, remedy: Remedy = Remedy.RESET_DEVICE, after_s: float = 7200) -> Scene:
    """Lets the node show the same fault once more after its return to service."""
    scene.later(after_s)
    scene.world.finding(on="n1", remedy=remedy, ago_s=1, boot_id=scene.world.nodes["n1"].boot_id)
    scene.triage()
    return scene
