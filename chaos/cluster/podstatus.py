"""Builds a pod's status as a kubelet writes it, from what it knows of the containers. Pure; podworker.py uses
it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from chaos.apiserver.kinds import Object
from chaos.apiserver.store import stamp
from chaos.cluster.containers import Exit

__all__ = ["ContainerState", "pod_status", "restarts_after"]


class ContainerState(msgspec.Struct):
    """The kubelet's knowledge of one container. `ended` is how the present run ended, and None until then.
    `last` is how the run before it ended. `for_good`: the container is not started again."""

    name: str
    container_id: str = ""
    restarts: int = 0
    started_at: datetime | None = None
    running: bool = False
    ended: Exit | None = None
    ended_at: datetime | None = None
    last: Object | None = None
    waiting: tuple[str, str] = ("ContainerCreating", "")
    for_good: bool = False

    def terminated(self) -> Object:
        assert self.ended is not None
        assert self.ended_at is not None
        state: Object = {
            "exitCode": self.ended.code,
            "reason": self.ended.reason or ("Completed" if self.ended.code == 0 else "Error"),
            "startedAt": stamp(self.started_at or self.ended_at),
            "finishedAt": stamp(self.ended_at),
            "containerID": f"containerd://{self.container_id}",
        }
        if self.ended.signal:
            state["signal"] = self.ended.signal
        if self.ended.message:
            state["message"] = self.ended.message
        return state


def restarts_after(policy: str, code: int) -> bool:
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def pod_status(pod: Object, states: list[ContainerState], now: datetime) -> Object:
    """Returns the fields of the status that a kubelet owns."""
    phase = _phase(str(pod["status"]["phase"]), states)
    ready = phase == "Running" and all(state.running for state in states)
    conditions = _conditions(pod, ready, now)
    started = [state.started_at for state in states if state.started_at is not None]
    status: Object = {
        "phase": phase,
        "conditions": conditions,
        "containerStatuses": [_container_status(pod, state) for state in states],
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
    }
    if started:
        status["startTime"] = pod.get("status", {}).get("startTime", stamp(min(started)))
    return status


def _phase(before: str, states: list[ContainerState]) -> str:
    """Returns the phase, which never goes back, not even after a reboot."""
    if before in ("Succeeded", "Failed"):
        return before
    if all(state.for_good for state in states):
        failed = any(state.ended is None or state.ended.code != 0 for state in states)
        return "Failed" if failed else "Succeeded"
    if before == "Running" or any(state.started_at is not None for state in states):
        return "Running"
    return "Pending"


def _conditions(pod: Object, ready: bool, now: datetime) -> list[Object]:
    """Returns the conditions. PodScheduled belongs to the scheduler and stays; the kubelet's conditions
    change their time only with their value."""
    old = {c["type"]: c for c in pod.get("status", {}).get("conditions", [])}
    found = [condition for kind, condition in old.items() if kind not in ("Ready", "ContainersReady")]
    value = "True" if ready else "False"
    for kind in ("Ready", "ContainersReady"):
        if kind in old and old[kind]["status"] == value:
            found.append(old[kind])
        else:
            found.append({"type": kind, "status": value, "lastTransitionTime": stamp(now)})
    return found


def _container_status(pod: Object, state: ContainerState) -> Object:
    image = next((c.get("image", "") for c in pod["spec"]["containers"] if c["name"] == state.name), "")
    status: Object = {
        "name": state.name,
        "image": image,
        "imageID": image,
        "ready": state.running,
        "started": state.running,
        "restartCount": state.restarts,
        "state": _state(state),
        "lastState": {"terminated": state.last} if state.last else {},
    }
    if state.container_id:
        status["containerID"] = f"containerd://{state.container_id}"
    return status


def _state(state: ContainerState) -> Object:
    if state.running:
        assert state.started_at is not None
        return {"running": {"startedAt": stamp(state.started_at)}}
    if state.for_good:
        return {"terminated": state.terminated()}
    reason, message = state.waiting
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}
