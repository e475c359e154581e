"""Finds what must have been undone once a gang's recoveries are over and the run is at rest: the changes that
a start made in the job, and the checkpoint from which the ranks resume. Later starts of the gang are not
Rekindle's."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from chaos.apiserver.kinds import Object
from chaos.simulate.liveness import job_of
from chaos.simulate.world import Simulation
from chaos.simulated.jobs import Kind
from chaos.simulated.reading import HOLD, MARK, has_completed, has_consented, has_failed
from detectors.client.kubeapi import ApiError
from recover.k8s.kinds import CONFIGMAPS
from recover.model.modes import Mode

__all__ = ["left_behind"]


def left_behind(sim: Simulation) -> Iterator[str]:
    for key in sim.gangs:
        recoveries = sim.recoveries(key)
        if not recoveries or any(recovery.active for recovery in recoveries):
            continue
        if key not in sim.truth.decided_by_people and (step := _told_step(sim, key)):
            yield f"the recoveries of {key} are over, and its ranks are still told to begin at step {step}"
        job = job_of(sim, key)
        if job is not None and _may_be_written(sim, job) and (kept := _kept(sim, key, job)):
            yield f"the recoveries of {key} are over, and its job is still kept off {', '.join(kept)}"


def _told_step(sim: Simulation, key: str) -> str:
    about = sim.gangs[key].job
    try:
        name = f"{about.name}-rekindle-{about.kind.value}"
        told = sim.cluster.store.read(CONFIGMAPS, name, about.namespace).body
    except ApiError:
        return ""
    return str(told.get("data", {}).get("REKINDLE_RESUME_STEP", ""))


def _may_be_written(sim: Simulation, job: Object) -> bool:
    is_held = job["metadata"].get("annotations", {}).get(HOLD)
    is_ours = has_consented(job) and sim.settings.mode is not Mode.OBSERVE and not is_held
    return is_ours and not has_completed(job) and not has_failed(job)


def _kept(sim: Simulation, key: str, job: Object) -> list[str]:
    """Returns the nodes that a PyTorchJob still avoids because of a recovery. Other jobs are not checked:
    Kubernetes allows changes of their affinity only at a start, and of a PyTorchJob's affinity also while it
    runs."""
    mark = msgspec.json.decode(job["metadata"].get("annotations", {}).get(MARK, "{}"))
    names = [recovery.metadata.name for recovery in sim.recoveries(key)]
    if sim.gangs[key].job.kind is not Kind.PYTORCHJOB or mark.get("recovery") not in names:
        return []
    return [*mark.get("avoided", ()), *mark.get("suspected", ())]
