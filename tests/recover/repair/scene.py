"""A node whose fault is quarantined, and its repair played step by step: what an agent, a Job's pod, a
kubelet and people do comes from the test, what is written in answer comes from the production decisions."""

from __future__ import annotations

from collections.abc import Mapping

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
    """`report(devices="passed", nccl="not-run")`; a `_` in a name stands for a `-`."""
    told = {name.replace("_", "-"): Outcome(value) for name, value in outcomes.items()}
    return ValidationReport(checks=tuple(Check(name=n, outcome=o, message="seen") for n, o in told.items()))


GOOD = report(devices="passed", kernel_log="passed", nccl="not-run")


class Scene:
    """Mutable on purpose. `n1` is the broken node."""

    def __init__(self, world: Worlds) -> None:
        self.world = world
        self.means = MEANS

    @property
    def incident(self) -> Incident:
        """The newest one of n1."""
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
        """One look of the repair loop, applied. What it wrote, Events aside."""
        found = self.look()
        apply(self.world, found)
        return [a.what for a in found.actions if isinstance(a, Create | Patch | Delete | Ask)]

    def settle(self) -> list[str]:
        """Looks until nothing is written any more. All that was written, in its order."""
        wrote: list[str] = []
        for _ in range(12):
            found = self.step()
            if not found:
                return wrote
            wrote += found
        raise AssertionError(f"no end: {wrote}")

    # --- what others do ------------------------------------------------------------------------------------

    def agent_lets_go(self) -> Scene:
        step = self.repair.step
        assert step is not None
        return self._health(hands_off=step.job)

    def job_ends(self, *, good: bool = True, says: ValidationReport | str = "") -> Scene:
        """That of the step under way, and its pod."""
        step = self.repair.step
        assert step is not None
        assert step.job in self.world.repair_jobs, "its Job was not made"
        job = self.world.repair_jobs[step.job]
        terminal = Terminal(succeeded=good, reason="" if good else "BackoffLimitExceeded", message="")
        self.world.repair_jobs[step.job] = msgspec.structs.replace(job, terminal=terminal)
        message = encode(says).decode() if isinstance(says, ValidationReport) else says
        ended = Container(name=step.kind, running=False, exit_code=0 if good else 1, message=message)
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
        """It comes up again; its agent reports from the new boot and has nothing to tell."""
        self.world.change_node("n1", boot_id=boot_id, ready=True, ready_since=self.world.now)
        return self._health(boot_id=boot_id, findings=[]) if agent else self

    def _health(self, **changes: object) -> Scene:
        health = self.world.health["n1"]
        status = msgspec.structs.replace(health.status, **changes)
        self.world.health["n1"] = msgspec.structs.replace(health, status=status)
        return self

    def bystander(self, name: str = "web-0") -> Scene:
        """A pod without accelerators runs there."""
        pod = Bystander("shop", name, f"{name}-uid", "n1")
        self.world.bystanders.setdefault("n1", {})[pod.uid] = pod
        return self

    def occupied(self, *, owner: str = "ReplicaSet") -> Scene:
        """A pod of no gang holds an accelerator there."""
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
        """What the settings say from now on."""
        self.world.mode = mode
        return self

    def limits(self, **changes: object) -> Scene:
        settings = self.world.settings
        rules = msgspec.structs.replace(settings.repair, **changes)
        self.world.settings = msgspec.structs.replace(settings, repair=rules)
        return self

    def repaired(self) -> Scene:
        """Through reset or reboot and validation, to the return."""
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
    """n1 has shown a fault, and triage has taken it out."""
    world = cluster(nodes, mode=Mode.REPAIR)
    world.change_node("n1", labels=labels)
    scene = Scene(world)
    world.finding(on="n1", fault=fault, remedy=remedy, severity=severity)
    scene.triage()
    assert world.nodes["n1"].quarantine is not None
    return scene


def rebooting() -> Scene:
    """Its reboot is asked for."""
    scene = broken(remedy=Remedy.REBOOT_NODE)
    scene.settle()
    assert scene.repair.phase is RepairPhase.REBOOTING
    return scene


def pending(*, opted_in: bool = True) -> Scene:
    """A contained fault on a node where a gang trains."""
    scene = broken(fault=Fault.MEMORY_DEGRADED, severity=Severity.PENDING)
    scene.world.running(gang(ranks=4, opted_in=opted_in))
    return scene


def hooked(scene: Scene) -> Scene:
    """Reboots are asked for by a webhook."""
    return scene.limits(webhook=Webhook(url="https://bmc.example/reboot"))


def says(scene: Scene) -> tuple[RepairPhase, str]:
    return scene.repair.phase, scene.repair.reason


def again(scene: Scene, *, remedy: Remedy = Remedy.RESET_DEVICE, after_s: float = 7200) -> Scene:
    """The node, given back, shows the same fault once more."""
    scene.later(after_s)
    scene.world.finding(on="n1", remedy=remedy, ago_s=1, boot_id=scene.world.nodes["n1"].boot_id)
    scene.triage()
    return scene
