"""The out-of-memory killer: the rule finds whose limit was reached."""

# ruff: noqa: E501  the kernel's lines are kept whole

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from detectors.rules import KernelRules
from detectors.rules.facts import Draft, HostFacts, KernelLine
from detectors.wire.contract import Origin, Severity, SubjectKind

UID = "0f3cd65a-338b-4574-bba3-ecef214e1917"
SLICE = UID.replace("-", "_")
RULES = KernelRules()
NOW = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)


def read(text: str) -> Draft | None:
    return RULES.read(KernelLine(sequence=1, at=NOW, text=text), HostFacts())


def killed(oom_memcg: str) -> Draft | None:
    return read(
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-4711,mems_allowed=0,oom_memcg={oom_memcg},"
        f"task_memcg={oom_memcg}/4711,task=python3,pid=4711,uid=0"
    )


@pytest.mark.parametrize(
    "cgroup",
    [
        f"/kubepods/burstable/pod{UID}",
        f"/kubepods/burstable/pod{UID}/4711",
        f"/kubelet/kubepods/pod{UID}/4711",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice",
        f"/kubepods.slice/kubepods-pod{SLICE}.slice/cri-containerd-4711.scope",
        f"/system.slice/containerd.service/kubepods-burstable-pod{SLICE}.slice:cri-containerd:4711",
    ],
)
def test_a_pods_limit_is_that_pods(cgroup: str) -> None:
    draft = killed(cgroup)

    assert draft is not None
    assert (draft.code, draft.subject.kind, draft.subject.pod) == ("oom-of-pod", SubjectKind.POD, UID)


@pytest.mark.parametrize(
    "limit",
    [
        f"/kubepods/burstable/pod{UID}",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice",
    ],
)
def test_an_old_kernel_names_the_pod_in_a_line_of_its_own(limit: str) -> None:
    """Linux before 4.19, mem_cgroup_print_oom_info; leptonai/gpud has such lines in its tests."""
    draft = read(f"Task in {limit}/4711 killed as a result of limit of {limit}")

    assert draft is not None
    assert (draft.code, draft.subject.kind, draft.subject.pod) == ("oom-of-pod", SubjectKind.POD, UID)
    assert read("Task in /docker/4711 killed as a result of limit of /docker/4711") is None


def test_the_limit_of_all_pods_or_of_a_service_is_no_pods() -> None:
    for cgroup in ("/kubepods.slice", "/system.slice/containerd.service", "/user.slice/podman"):
        draft = killed(cgroup)
        assert draft is not None
        assert (draft.code, draft.subject.kind) == ("oom-of-cgroup", SubjectKind.NODE)


def test_a_node_without_memory_is_told_as_such() -> None:
    draft = read(
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-7,oom_memcg=/,task_memcg=/user.slice,task=python3,pid=18422,uid=1001"
    )

    assert draft is not None
    assert draft.code == "oom-of-node"


@pytest.mark.parametrize(
    "text",
    [
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/kubepods/pod{UID},task=x",
        "oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=0,cpuset=x",
        "Memory cgroup out of memory: Killed process 123456 (python3) total-vm:98172348kB, anon-rss:66121180kB",
        "Out of memory: Killed process 4711 (x) total-vm:1kB",
        "Memory cgroup out of memory: Kill process 4711 (x) score 1973 or sacrifice child",
    ],
)
def test_all_of_it_is_the_tenants_and_a_note(text: str) -> None:
    draft = read(text)

    assert draft is not None
    assert (draft.origin, draft.severity) == (Origin.TENANT, Severity.INFO)
