"""Finds checkpoints that look complete and do not load. Pure; for the scan, and for what a recovery says
about the scan.

The evidence comes from a loader: a rank's first error is that it could not read a checkpoint. If no log says
why the ranks ended, attempts that began from one checkpoint and made no step are evidence only once so many
have failed that the next attempt is the last: until then the newest complete checkpoint is the best guess.
"""

from __future__ import annotations

from detectors.wire.contract import Fault
from recover.api import Cause, CheckpointChoice, Recovery
from recover.diagnose.witnesses import reports_of
from recover.model import Gang, World
from recover.policy.settings import Settings
from recover.triage.attempts import attempts_limit

__all__ = ["may_be_the_checkpoint", "passed_over", "unloadable"]

_NOT_LOADED = "log-checkpoint"
"""Code in detectors/catalog/log_errors.toml of a line that says that a checkpoint did not load."""
_NOT_THE_CHECKPOINT = frozenset(
    {
        "log-address-in-use",
        "log-ascend-device",
        "log-cuda-contained",
        "log-cuda-driver-old",
        "log-cuda-ecc",
        "log-cuda-error",
        "log-cuda-fabric",
        "log-cuda-no-device",
        "log-cuda-nvlink",
        "log-cuda-oom",
        "log-cudnn",
        "log-download",
        "log-hip-error",
        "log-host-oom",
        "log-ib-completion",
        "log-ib-retry",
        "log-no-space",
        "log-not-started",
        "log-rendezvous-closed",
        "log-shm",
        "log-usage",
    }
)
"""Codes of the same file that name another cause. A traceback or a signal may come from any loader."""
_OF_THE_PROGRAM = frozenset({Fault.APPLICATION, Fault.HANG, Fault.UNKNOWN})
"""Fault classes of ranks that may not have been able to load. The failure of a node says nothing about
that."""
_ATTEMPTS_MIN = 2


def may_be_the_checkpoint(cause: Cause) -> bool:
    """Whether the attempt may have ended because its checkpoint did not load."""
    return cause.fault in _OF_THE_PROGRAM and cause.error not in _NOT_THE_CHECKPOINT


def unloadable(recovery: Recovery, gang: Gang, world: World, settings: Settings) -> list[int]:
    """Returns the steps from which the next start must not begin. An attempt in which never all ranks ran
    excludes no step. Steps that an earlier attempt of this recovery has passed over stay excluded."""
    status = recovery.status
    before, fruitless = status.checkpoint, list(status.fruitless)
    excluded: set[int] = set()
    if before is not None:
        excluded.update(before.excluded)
        errors = _first_errors(recovery, world, before)
        if before.step is not None and _NOT_LOADED in errors:
            excluded.add(before.step)
        if before.step in fruitless and errors & _NOT_THE_CHECKPOINT:
            fruitless.remove(before.step)  # reported after that attempt was judged
    needed = max(_ATTEMPTS_MIN, attempts_limit(gang, settings.budgets) - 1)
    return sorted(excluded | {step for step in fruitless if fruitless.count(step) >= needed})


def _first_errors(recovery: Recovery, world: World, began: CheckpointChoice) -> set[str]:
    """Returns the first errors of ranks that made no step in the attempt that began from this checkpoint, if
    all ranks ran in that attempt."""
    status = recovery.status
    if began.attempt >= status.attempt or began.attempt in status.uncounted:
        return set()
    ranks = reports_of(world, status.witnesses)
    return {rank.first_error.code for rank in ranks if rank.first_step is None and rank.first_error}


def passed_over(recovery: Recovery, choice: CheckpointChoice) -> str:
    """Returns, in words, why the start does not begin from a newer checkpoint; empty if none was passed
    over."""
    newer = [step for step in choice.excluded if choice.step is None or step > choice.step]
    fruitless = recovery.status.fruitless
    words = []
    for step in newer:
        times = fruitless.count(step)
        why = (
            f"{times} attempts began from this checkpoint and made no step"
            if times > 1
            else "a rank could not read this checkpoint"
        )
        words.append(f"step {step} is excluded, because {why}")
    return "; ".join(words)
