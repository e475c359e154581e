"""Decides which fault of a GPU is the exception of a program, which under MPS may end the programs of others.
Pure.

After such an exception the agent publishes which pods share GPUs, and the controller finds out which program
may have caused it.
"""

from __future__ import annotations

from detectors.wire.contract import Fault, Severity, Subject, SubjectKind

__all__ = ["is_exception"]


def is_exception(subject: Subject, fault: Fault, severity: Severity) -> bool:
    """Whether the finding is a fatal fault of a program on a GPU, according to the driver."""
    return subject.kind is SubjectKind.DEVICE and fault is Fault.APPLICATION and severity is Severity.FATAL
