"""Which fault of a GPU is the exception of a program, which by MPS may end the programs of others. Pure; the
agent publishes who shares GPUs after one, and the controller asks whose it may be.
"""

from __future__ import annotations

from detectors.wire.contract import Fault, Severity, Subject, SubjectKind

__all__ = ["is_exception"]


def is_exception(subject: Subject, fault: Fault, severity: Severity) -> bool:
    """A program's own fatal fault on a GPU, by the driver's word."""
    return subject.kind is SubjectKind.DEVICE and fault is Fault.APPLICATION and severity is Severity.FATAL
