"""Writes Events on the ConfigMap `rekindle-pause` when Rekindle is paused or resumed. A separate loop runs
this decision. A controller that starts during a pause writes the Event again, under the same name.
"""

from __future__ import annotations

from datetime import datetime

from recover.api.reasons import EventReason
from recover.k8s.bodies import regarding
from recover.k8s.kinds import CONFIGMAPS
from recover.model import World
from recover.model.actions import Emit, Plan
from recover.model.pause import PAUSE, Pause

__all__ = ["PauseNews"]

_MEANS = (
    "Rekindle stops no job, cordons and taints no node, and begins no step of a repair. It still "
    "starts jobs that it stopped before the pause, and may use spares for these. `rekindle resume` ends the "
    "pause"
)
_RESUMED = (
    "The pause has ended. Rekindle restarts jobs that are down, and acts on each fault of a node that occurs "
    "again or continues"
)


class PauseNews:
    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._told: Pause | None = None

    def decide(self, world: World, _now: datetime) -> Plan:
        paused, before = world.modes.paused, self._told
        if paused == before:
            return Plan()
        self._told = paused
        if paused is not None:
            words = ". ".join((paused.words(), *paused.problems, _MEANS))
            return Plan(chains=((self._event(EventReason.PAUSED, words, paused, warning=True),),))
        assert before is not None, "either of the two is set"
        return Plan(chains=((self._event(EventReason.RESUMED, _RESUMED, before, warning=False),),))

    def _event(self, reason: EventReason, words: str, pause: Pause, *, warning: bool) -> Emit:
        about = regarding(CONFIGMAPS.api_version, CONFIGMAPS.kind, PAUSE, pause.uid, self._namespace)
        key = f"{pause.since.isoformat()}-{pause.until.isoformat() if pause.until is not None else ''}"
        return Emit(reason=reason, message=words, regarding=about, warning=warning, key=key)
