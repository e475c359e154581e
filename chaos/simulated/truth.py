"""The truth of a simulation: what really happened, whether or not anybody has seen it. The checks compare
with this truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from chaos.cluster.containers import ContainerRun
from chaos.simulated.jobs import Gang
from chaos.simulated.lines import Harm
from chaos.simulated.reading import owner
from chaos.simulated.training import SAVED

__all__ = ["HardwareFault", "Life", "Truth"]


class HardwareFault(msgspec.Struct, frozen=True):
    at: datetime
    boot_id: str
    harm: Harm
    line: str
    told_at: datetime
    """Time of the fault by the clock of its node if that clock is ahead, and otherwise the true time. A mode
    acts on faults that are dated after the mode's beginning."""
    settles: bool = False
    """Whether the controller must wait a moment for lines that soften this one. It need not if an earlier
    line of the boot has begun that wait, or if the node's clock is behind."""

    @property
    def cordons(self) -> bool:
        return self.harm is Harm.FATAL


class Life(msgspec.Struct):
    """The state of one gang's ranks."""

    gang: Gang
    running: dict[str, tuple[str, datetime]] = {}
    """Pod uid -> node and start, for the pods of which a container runs, on any machine."""
    started: dict[str, datetime] = {}
    """Pod uid -> last start of a container, for all pods that the gang ever had."""
    stepped_at: datetime | None = None
    saved_at: datetime | None = None
    """Time of the last line in the gang's log that reported a complete checkpoint."""
    lost_at: datetime | None = None
    """Time at which a container of the gang last ended, for any cause."""

    def trains(self, now: datetime) -> bool:
        """Whether all ranks of the gang run and have made a step recently."""
        patience = timedelta(seconds=2.5 * self.gang.job.step_s + 1)
        return (
            len(self.running) == self.gang.job.ranks
            and not self.gang.training.hanging & self.running.keys()
            and self.stepped_at is not None
            and self.stepped_at >= max(at for _, at in self.running.values())
            and now - self.stepped_at <= patience
        )


class Truth:
    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.faults: dict[str, list[HardwareFault]] = {}
        """Faults by node."""
        self.clock_leads_s: Mapping[str, float] = {}
        """Seconds by which the clock of a node is ahead."""
        self.lives: dict[str, Life] = {}
        """Lives by the uid of the gang's job."""
        self.resumed_at: dict[str, datetime] = {}
        """Time at which the controller last started a gang, by the uid of its job."""
        self.decided_by_people: set[str] = set()
        """Keys of the jobs that people have suspended or started. This may end a Recovery permanently."""
        self.began_at = now()
        """Time at which the simulation began, and with it the controller's first mode."""
        self.acting_since = datetime.min.replace(tzinfo=UTC)
        """Time at which the controller started in a mode that people had raised, or at which people ended a
        pause: the controller may act on faults from then on."""

        self.paused_since: datetime | None = None
        """Time at which people paused the controller. None if they have not."""
        self.paused_until: datetime | None = None
        """Time at which that pause ends by itself. None if it does not."""

    def running(self, gang_uid: str) -> set[str]:
        """Returns the uids of the gang's pods of which a container runs."""
        life = self.lives.get(gang_uid)
        return set(life.running) if life is not None else set()

    def started(self, run: ContainerRun, gang: Gang) -> None:
        life = self.lives.setdefault(owner(run.pod), Life(gang))
        life.running[run.uid] = (run.node, self._now())
        life.started[run.uid] = self._now()

    def said(self, run: ContainerRun, text: str) -> None:
        if text.startswith("step "):
            self.lives[owner(run.pod)].stepped_at = self._now()
        elif text.startswith(SAVED):
            self.lives[owner(run.pod)].saved_at = self._now()

    def ended(self, run: ContainerRun) -> None:
        life = self.lives[owner(run.pod)]
        life.running.pop(run.uid, None)
        life.lost_at = self._now()

    def broke(self, node: str, fault: HardwareFault) -> None:
        self.faults.setdefault(node, []).append(fault)

    def is_ahead(self, node: str) -> bool:
        """Whether the node's clock is ahead, so that its events seem to happen later than they do."""
        return self.clock_leads_s.get(node, 0.0) > 1.0

    def has_trained(self, node: str, since: datetime) -> bool:
        """Whether a gang with a rank on the node has made a step since."""
        return any(
            life.stepped_at is not None and life.stepped_at > since
            for life in self.lives.values()
            if any(where == node for where, _ in life.running.values())
        )

    def harms(self, node: str, boot_id: str, harm: Harm | None = None) -> list[HardwareFault]:
        """Returns the hardware faults of that boot. With `harm` only faults of that kind are returned."""
        found = [fault for fault in self.faults.get(node, []) if fault.boot_id == boot_id]
        return found if harm is None else [fault for fault in found if fault.harm is harm]
