"""What really happened in a simulation, whatever anybody has seen of it: the checks compare with this."""

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
    """By the clock of its node, if that is ahead: a mode acts on what is dated after its beginning."""
    settles: bool = False
    """The controller must wait a moment for lines that soften it. It need not where an earlier line of the
    boot has begun that wait, or where the node's clock is behind."""

    @property
    def cordons(self) -> bool:
        return self.harm is Harm.FATAL


class Life(msgspec.Struct):
    """What the ranks of one gang do."""

    gang: Gang
    running: dict[str, tuple[str, datetime]] = {}
    """Pod uid -> node and start, of the pods of which a container runs, on whatever machine."""
    started: dict[str, datetime] = {}
    """Pod uid -> the last start of a container, of all pods that it ever had."""
    stepped_at: datetime | None = None
    saved_at: datetime | None = None
    """When its log said last that a checkpoint is complete."""
    lost_at: datetime | None = None
    """When a container of it ended last, by whatever cause."""

    def trains(self, now: datetime) -> bool:
        """All its ranks run and have made a step not long ago."""
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
        """By node."""
        self.clock_leads_s: Mapping[str, float] = {}
        """How far the clock of a node is ahead."""
        self.lives: dict[str, Life] = {}
        """By the uid of the gang's job."""
        self.resumed_at: dict[str, datetime] = {}
        """When the controller last started a gang, by the uid of its job."""
        self.decided_by_people: set[str] = set()
        """Keys of the jobs that people have suspended or started, which may end a Recovery for good."""
        self.began_at = now()
        """When the controller started in its first mode."""
        self.acting_since = datetime.min.replace(tzinfo=UTC)
        """When the controller started in the mode that people had raised, or when they resumed it: it may act
        on faults from then on."""

        self.paused_since: datetime | None = None
        """When people paused the controller; None where they have not."""
        self.paused_until: datetime | None = None
        """When that pause ends by itself, if it does."""

    def running(self, gang_uid: str) -> set[str]:
        """Uids of its pods of which a container runs."""
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
        """Its clock is ahead, so that its events seem to happen later than they do."""
        return self.clock_leads_s.get(node, 0.0) > 1.0

    def has_trained(self, node: str, since: datetime) -> bool:
        """Whether a gang with a rank there has made a step since."""
        return any(
            life.stepped_at is not None and life.stepped_at > since
            for life in self.lives.values()
            if any(where == node for where, _ in life.running.values())
        )

    def harms(self, node: str, boot_id: str, harm: Harm | None = None) -> list[HardwareFault]:
        """The hardware faults of that boot; with `harm` only those of that kind."""
        found = [fault for fault in self.faults.get(node, []) if fault.boot_id == boot_id]
        return found if harm is None else [fault for fault in found if fault.harm is harm]
