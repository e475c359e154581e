"""Findings and pods of a status, for tests of published statuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from detectors.wire.contract import Fault, Finding, Origin, Severity, Subject, SubjectKind
from detectors.wire.training import Edge, PodProgress

__all__ = ["NOW", "finding", "pod"]

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


def finding(number: int, **changes: object) -> Finding:
    base = Finding(
        id=f"0f1e2d3c-kmsg-{number}",
        code=f"xid-{number}",
        fault=Fault.UNKNOWN,
        origin=Origin.KERNEL,
        severity=Severity.PENDING,
        subject=Subject(kind=SubjectKind.DEVICE, device=f"GPU-{number}", pci=f"0000:{number:02x}:00"),
        boot_id="0f1e2d3c-0000-4000-8000-000000000000",
        first_seen=NOW + timedelta(seconds=number),
        last_seen=NOW + timedelta(seconds=number),
        evidence="e" * 256,
    )
    return msgspec.structs.replace(base, **changes)


def pod(number: int, tail: str = "", edge: Edge = Edge.STEPPING) -> PodProgress:
    return PodProgress(
        uid=f"uid-{number}",
        namespace="train",
        name=f"llm-{number}",
        edge=edge,
        at=NOW + timedelta(seconds=number),
        tail=tail,
    )
