"""The rules that the controller must never break, one class each. Every write is checked against all of them.

In: writes and truth.
Out: violations.
Touches: nothing: pure.

A check reads the plain objects and the truth of the simulation, and nothing of the controller's own views, so
that a mistake in how the controller reads the cluster is not repeated in the check. `ALL` is the
registration: a new check is a class in one of the files, and its line there.
"""

from __future__ import annotations

from chaos.invariants import (
    blame,
    budgets,
    choices,
    closes,
    consent,
    freed,
    haste,
    jobs,
    loops,
    nodes,
    pauses,
    quarantines,
    recoveries,
    recreation,
    repairs,
    spares,
    starts,
    stops,
    writers,
)
from chaos.invariants.base import Check

__all__ = ["ALL"]

ALL: tuple[type[Check], ...] = (
    writers.OwnObjectsOnly,
    writers.NamesTheVersion,
    writers.ObserveModeOnlyObserves,
    pauses.NothingBeginsWhilePaused,
    recoveries.OneRecoveryAtATime,
    consent.HeldJobsAreLeft,
    consent.UndoneIsNotRepeated,
    # Reports about faults.
    blame.ApplicationsAreBlamedIfSeen,
    blame.CausesAreItsOwn,
    closes.ClosesWhenOver,
    # Nodes.
    nodes.NodesOfOthers,
    quarantines.QuarantinedForACause,
    budgets.WithinLimits,
    budgets.BrakeOfOneClass,
    budgets.SoftTaintsAreNotLimited,
    spares.SparesStandIn,
    repairs.StepsAreWrittenFirst,
    repairs.StepsHarmNobody,
    repairs.FewAtOnce,
    repairs.GivenBackValidated,
    # Jobs.
    recreation.RecreatedAsItWas,
    jobs.OnlyTheFieldsOfAStart,
    jobs.EachActOnce,
    haste.GraceInPlace,
    haste.AllRanksRunBeforeProof,
    stops.StopsForACause,
    stops.StoppedAgainForItsOwn,
    freed.FreedPodsAreDead,
    starts.NoOldPods,
    starts.OffBrokenNodes,
    starts.OffSuspects,
    starts.RoomForAllRanks,
    choices.NewestCheckpointThatLoads,
    loops.CrashLoopsEnd,
    loops.GivenUpAtTheLimit,
)
