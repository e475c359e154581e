"""The acts of a random script: faults, troubles of the network, people. Each act is a value with all of its
parameters, so that a script can be written down, played again, and made smaller without changing the rest.

`ALL` is the registration: a new act is a struct in one of the files, and its line there.
"""

from __future__ import annotations

from chaos.simulate.acts import faults, network, people, repairs, series
from chaos.simulate.acts.base import Act, Scene

__all__ = ["ALL", "IN_REPAIR", "Act", "AnyAct", "Scene"]

AnyAct = faults.AnyFault | series.AnySeries | network.AnyTrouble | people.AnyDeed | repairs.AnyRepairTrouble
"""The acts that a written script may contain."""

ALL: tuple[tuple[float, type[AnyAct]], ...] = (
    (4, faults.KernelLine),
    (4, faults.LineOfRank),
    (1.5, faults.Worsening),
    (1, faults.LinesEverywhere),
    (0.8, faults.MassFault),
    (3, faults.RankCrash),
    (1, faults.CrashesInARow),
    (2, faults.RankHang),
    (1.5, faults.NodeDeath),
    (1, faults.NodeOfRankDeath),
    (1, faults.Reboot),
    (1, faults.BootAll),
    (0.5, faults.Join),
    (1, faults.LateEvidence),
    (1, faults.AgentRestart),
    (0.3, faults.AgentLoss),
    (0.5, faults.ProgramChange),
    (1, faults.CheckpointDamage),
    (3, network.ControllerDeath),
    (1.5, network.LostReplies),
    (1, network.DroppedWatches),
    (1, network.Refusals),
    (1.5, network.WatchLag),
    (0.7, network.SlowServer),
    (0.7, network.AgentsCutOff),
    (0.7, network.Partition),
    (1, network.NodeWebhook),
    (0.7, network.RecoveryQuota),
    (0.2, network.NamespaceEnd),
    (1, people.Uncordon),
    (0.5, people.Cordon),
    (0.5, people.Suspension),
    (0.5, people.Hold),
    (0.3, people.NodeHold),
    (0.3, people.JobDeletion),
    (0.3, people.Disagreement),
    (1, people.Fencing),
    (0.5, people.NodeRemoval),
    (0.3, people.SpareChange),
    (4, people.Promotion),
)
"""Weight and act. Left out are the acts that only situations/ draws, the acts of repairs (IN_REPAIR has
them), and the pause, which tests add to drawn scripts."""

_OUTSIDE_REPAIR = (people.Disagreement, people.SpareChange, people.Promotion)
IN_REPAIR: tuple[tuple[float, type[AnyAct]], ...] = (
    *((weight, act) for weight, act in ALL if act not in _OUTSIDE_REPAIR),
    (2, repairs.Visit),
    (2, repairs.Freeze),
    (2, repairs.LowerMode),
    (2, repairs.StepDeletion),
    (2, repairs.IncidentDeletion),
    (2, repairs.RebootInRepair),
)
"""Weight and act for scripts in mode repair."""
