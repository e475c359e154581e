"""Reads lines of the kernel's out-of-memory killer: whose limit was reached, or that the whole node had no
memory left.

`oom-kill:constraint=CONSTRAINT_MEMCG,...,oom_memcg=/kubepods/burstable/pod<uid>/...,task_memcg=...,pid=1`.
Kernels before 4.19, for example that of CentOS 7, print another line instead: `Task in /kubepods/... killed
as a result of limit of /kubepods/burstable/pod<uid>`. The kubelet writes a pod's uid into the names of its
cgroups, with `_` for `-` if systemd names them. All of these lines are about the tenant's program: each is a
note, which takes no node out of service. Source: Linux, mm/oom_kill.c and mm/memcontrol.c.
"""

from __future__ import annotations

import re

from detectors.rules.base import Rule
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.wire.contract import Family, Fault, Origin, Severity, Subject, SubjectKind

__all__ = ["RULE"]

_HEAD = "oom-kill:constraint=CONSTRAINT_"
_OLD_HEAD = "Task in /"
_KILLED = (
    "Memory cgroup out of memory: Killed process ",
    "Memory cgroup out of memory: Kill process ",
    "Out of memory: Killed process ",
    "Out of memory: Kill process ",
)
_OF_CGROUP = "MEMCG,"
_CGROUP = re.compile(r",oom_memcg=(?P<cgroup>/[^,]*),")
_OLD_CGROUP = re.compile(r"Task in /\S{0,4000} killed as a result of limit of (?P<cgroup>/\S*)\s*")
_POD = re.compile(r"pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?(?:[/:]|$)")


def match(line: KernelLine, host: HostFacts, catalog: None) -> Draft | None:
    if line.text.startswith(_KILLED):
        of_cgroup = line.text.startswith("Memory cgroup")
        return _draft("oom-of-cgroup" if of_cgroup else "oom-of-node", Subject(kind=SubjectKind.NODE))
    if line.text.startswith(_OLD_HEAD):
        return _of_cgroup(_OLD_CGROUP.fullmatch(line.text))
    if not line.text.startswith(_OF_CGROUP, len(_HEAD)):
        return _draft("oom-of-node", Subject(kind=SubjectKind.NODE))
    return _of_cgroup(_CGROUP.search(line.text)) or _draft("oom-of-cgroup", Subject(kind=SubjectKind.NODE))


def _of_cgroup(found: re.Match[str] | None) -> Draft | None:
    """Returns the draft if the cgroup whose limit was reached is a pod's."""
    pod = _POD.search(found["cgroup"]) if found is not None else None
    if pod is None:
        return None
    return _draft("oom-of-pod", Subject(kind=SubjectKind.POD, pod=pod["uid"].replace("_", "-")))


def _draft(code: str, subject: Subject) -> Draft:
    return Draft(
        code=code,
        fault=Fault.RESOURCES,
        origin=Origin.TENANT,
        severity=Severity.INFO,
        subject=subject,
    )


RULE = Rule(
    "oom", family=Family.OOM, heads=(_HEAD, _OLD_HEAD, *_KILLED), match=match, catalog=lambda user: None
)
