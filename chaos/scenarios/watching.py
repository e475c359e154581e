"""Reports changes of the API objects and steps of the training while a scenario plays, in plain words and
with the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from chaos.apiserver.kinds import Object
from chaos.scenarios.faults import last_step_line
from chaos.scenarios.stage import Stage
from recover.api import Outcome, Phase
from recover.k8s.kinds import INCIDENTS, NODEHEALTHS, NODES, RECOVERIES

__all__ = ["Told", "Watcher"]

LOOK_S = 0.02


class Told(msgspec.Struct, frozen=True):
    """One reported line."""

    at_s: float
    who: str
    words: str


class Watcher:
    """`job` is the name of the training whose steps are reported: one line for every `steps_apart` steps."""

    def __init__(
        self, stage: Stage, tell: Callable[[Told], None], began: datetime, *, job: str, steps_apart: int
    ) -> None:
        self._stage = stage
        self._job = job
        self._steps_apart = steps_apart
        self._stretch = 0
        """Last reported step, in units of `steps_apart`."""
        self._tell = tell
        self._began = began
        self._said: set[tuple[str, ...]] = set()

    def say(self, who: str, words: str) -> None:
        self._tell(Told((datetime.now(UTC) - self._began).total_seconds(), who, words))

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        self._steps()
        for health in self._stage.objects(NODEHEALTHS):
            self._health(health)
        for node in self._stage.objects(NODES):
            self._node(node)
        for incident in self._stage.objects(INCIDENTS):
            self._incident(incident)
        for recovery in self._stage.objects(RECOVERIES):
            self._recovery(recovery)

    def _steps(self) -> None:
        """Reports steps from the log of the first rank. After a restart the steps begin below the last
        one."""
        line = last_step_line(self._stage, self._job)
        if line is None:
            return
        stretch = line.step // self._steps_apart
        if stretch != self._stretch:
            self._stretch = stretch
            self.say("training", f"rank 0 prints: {line.text}")

    def _once(self, who: str, words: str, *identity: str) -> None:
        if (who, *identity) not in self._said:
            self._said.add((who, *identity))
            self.say(who, words)

    def _health(self, health: Object) -> None:
        name = health["metadata"]["name"]
        for finding in health.get("status", {}).get("findings", []):
            words = (
                f"{finding['code']}: {finding['fault']}, {finding['severity']}, from the {finding['origin']}"
            )
            self._once(f"agent {name}", words, finding["id"])

    def _node(self, node: Object) -> None:
        name, spec = node["metadata"]["name"], node.get("spec", {})
        taints = [t for t in spec.get("taints", []) if t["key"] == "rekindle.dev/unhealthy"]
        if taints:
            words = (
                f"{name} {'cordoned and ' if spec.get('unschedulable') else ''}tainted {taints[0]['value']}"
            )
            self._once("controller", words, name, taints[0]["value"])

    def _incident(self, incident: Object) -> None:
        name, status = incident["metadata"]["name"], incident.get("status", {})
        if "summary" in status:
            self._once("controller", f"incident: {status['summary']}", name, status["summary"])
        for record in status.get("actions", []):
            if record["outcome"] != Outcome.DONE:
                verb = "would" if record["outcome"] == Outcome.WOULD else "did not"
                words = f"{verb} {record['action']} {record['target']}: {record['reason']}"
                self._once("controller", words, name, record["action"], record["target"], record["reason"])

    def _recovery(self, recovery: Object) -> None:
        name, status = recovery["metadata"]["name"], recovery.get("status", {})
        phase, attempt = status.get("phase"), str(status.get("attempt", 1))
        rejected = status.get("checkpoint", {}).get("rejected", [])
        for checkpoint in rejected:
            words = f"does not use the checkpoint of step {checkpoint['step']}: {checkpoint['reason']}"
            self._once("controller", words, name, attempt, str(checkpoint["step"]))
        if phase and phase != Phase.PLANNED:
            self._once("controller", f"{phase}: {status.get('message', '')}", name, phase, attempt)
