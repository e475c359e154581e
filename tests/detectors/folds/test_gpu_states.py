"""Tests the way from samples of the GPUs to findings of a NodeHealth: what counts, when, and what ends a
finding."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.catalog.tables import UserRows
from detectors.folds.core import AgentCore, Dirty
from detectors.folds.gpu_states import BusGpus
from detectors.rules import KernelRules
from detectors.rules.facts import KernelLine
from detectors.rules.gpu_health import GPU_HEALTH, GpuHealth
from detectors.service.settings import AgentSettings, Nvml
from detectors.sources.inventory import of_sample
from detectors.wire.contract import Finding, NodeHealthStatus, Remedy, Severity, SubjectKind
from detectors.wire.gpu_sample import GpuSample, Sample
from tests.detectors.folds.samples import COUNT, LINKS, LOST, gpu, node, pci, place, without

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
BOOT = "0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0f1"
KERNEL_RULES, HEALTH = KernelRules(), GpuHealth()


class Node:
    def __init__(self, settings: AgentSettings | None = None, bus: BusGpus | None = None) -> None:
        self.core = AgentCore(
            settings or AgentSettings(), boot_id=BOOT, kernel_rules=KERNEL_RULES, gpu_health=HEALTH
        )
        self.bus = bus or BusGpus()
        self.now = NOW
        self.writes = 0

    def samples(self, *samples: Sample, every_s: float = 30.0) -> bool:
        """Folds the samples. Returns True if another sample must soon follow the last one."""
        is_doubtful = False
        for sample in samples:
            found = of_sample(sample)
            is_doubtful = self.core.gpus(sample, found.devices, found.mig_devices, self.bus, self.now)
            self.writes += self.core.dirty is Dirty.EDGE
            self.core.mark_written()
            self.now += timedelta(seconds=every_s)
        return is_doubtful

    @property
    def status(self) -> NodeHealthStatus:
        return self.core.status(self.now)

    @property
    def open(self) -> dict[str, Finding]:
        """Open findings by code."""
        return {one.code: one for one in self.core.findings if one.cleared_at is None}


def test_healthy_gpus_cost_one_write_and_no_finding() -> None:
    node_ = Node()

    node_.samples(*[node()] * 100)

    assert (node_.core.findings, node_.writes) == ([], 1)


def test_a_gpu_that_nvml_has_lost_is_named_after_three_samples_by_those_that_answer() -> None:
    node_ = Node()
    node_.samples(node())

    assert node_.samples(node(LOST), node(LOST)), "it is looked at again soon"
    assert not node_.open
    node_.samples(node(LOST))

    finding = node_.open["nvml-gpu-lost"]
    assert (finding.severity, finding.remedy, finding.final) == (Severity.FATAL, Remedy.REBOOT_NODE, True)
    assert (finding.subject.device, finding.subject.pci) == ("GPU-2", pci(2))
    assert "GPU_IS_LOST" in finding.evidence
    assert [device.uuid for device in node_.status.devices] == ["GPU-0", "GPU-1", "GPU-3", "GPU-2"]


def test_a_state_that_lasts_costs_one_write_and_grows_old() -> None:
    node_ = Node()
    node_.samples(*[node(LOST)] * 3)
    before, seen = node_.writes, node_.open["nvml-gpu-lost"].last_seen

    node_.samples(*[node(LOST)] * 50)

    assert node_.writes == before
    assert node_.open["nvml-gpu-lost"].last_seen == seen


def test_a_lost_gpu_of_which_nobody_knows_which_it_is_is_the_nodes() -> None:
    node_ = Node()

    node_.samples(*[node(LOST)] * 3)

    assert node_.open["nvml-gpu-lost"].subject.kind is SubjectKind.NODE
    node_.samples(node(), node())
    assert not node_.open


def test_a_gpu_that_was_lost_before_the_agent_came_is_named_by_the_bus() -> None:
    node_ = Node(bus=BusGpus(ours=frozenset(map(place, range(COUNT)))))

    node_.samples(*[node(LOST)] * 3)

    assert node_.open["nvml-gpu-lost"].subject.pci == pci(2)


def test_one_sample_that_goes_wrong_is_no_finding() -> None:
    node_ = Node()

    node_.samples(*[node(), node(LOST), node(LOST), node()] * 20)

    assert not node_.core.findings


ROWS: list[tuple[dict[str, Any], str, Severity, Remedy]] = [
    ({"refused": "GPU_IS_LOST"}, "nvml-gpu-lost", Severity.FATAL, Remedy.REBOOT_NODE),
    ({"refused": "RESET_REQUIRED"}, "nvml-reset-required", Severity.FATAL, Remedy.RESET_DEVICE),
    ({"recovery_action": 1}, "nvml-recovery-action-1", Severity.FATAL, Remedy.RESET_DEVICE),
    ({"recovery_action": 2}, "nvml-recovery-action-2", Severity.FATAL, Remedy.REBOOT_NODE),
    ({"recovery_action": 4}, "nvml-recovery-action-4", Severity.PENDING, Remedy.DRAIN_AND_RESET),
    ({"recovery_action": 9}, "nvml-recovery-action-9", Severity.PENDING, Remedy.CONTACT_SUPPORT),
    ({"rows_failed": True}, "nvml-row-remap-failed", Severity.PENDING, Remedy.DRAIN_AND_RESET),
    ({"sram_exceeded": True}, "nvml-sram-threshold", Severity.PENDING, Remedy.DRAIN_AND_RESET),
    ({"rows_pending": True}, "nvml-row-remap-pending", Severity.SUSPECT, Remedy.RESET_DEVICE),
    ({"pages_pending": True}, "nvml-page-retirement-pending", Severity.SUSPECT, Remedy.RESET_DEVICE),
    ({"uncorrected": {"SRAM": 2}}, "nvml-ecc-uncorrectable", Severity.SUSPECT, Remedy.NONE),
    ({"links": (*LINKS[:-1], False)}, "nvml-link-down", Severity.SUSPECT, Remedy.RESET_DEVICE),
    ({"fabric_state": 3, "fabric_health": 1}, "nvml-fabric-unhealthy", Severity.INFO, Remedy.NONE),
    ({"fabric_state": 2}, "nvml-fabric-not-ready", Severity.INFO, Remedy.NONE),
    ({"slowdowns": 0x48}, "nvml-slowdown", Severity.INFO, Remedy.NONE),
    ({"slowdowns": 0x80}, "nvml-power-brake", Severity.INFO, Remedy.NONE),
    ({"margin_c": 0}, "nvml-hot", Severity.INFO, Remedy.NONE),
    ({"pcie_width": 8}, "nvml-pcie-width", Severity.INFO, Remedy.NONE),
    ({"link_errors": 3}, "nvml-link-errors", Severity.INFO, Remedy.NONE),
    ({"replays": 100}, "nvml-pcie-replays", Severity.INFO, Remedy.NONE),
    ({"uncorrected_ever": 1}, "nvml-ecc-ever", Severity.INFO, Remedy.NONE),
    ({"is_inforom_bad": True}, "nvml-inforom", Severity.INFO, Remedy.NONE),
    ({"health_bits": 0x01}, "ixml-system-hub", Severity.SUSPECT, Remedy.INSPECT),
    ({"health_bits": 0x02}, "ixml-memory-controller", Severity.SUSPECT, Remedy.INSPECT),
    ({"health_bits": 0x04}, "ixml-over-temperature", Severity.INFO, Remedy.NONE),
    ({"health_bits": 0x08}, "ixml-over-voltage", Severity.INFO, Remedy.NONE),
    ({"health_bits": 0x10}, "ixml-ecc", Severity.SUSPECT, Remedy.INSPECT),
    ({"health_bits": 0x20}, "ixml-memory", Severity.SUSPECT, Remedy.INSPECT),
    ({"health_bits": 0x40}, "ixml-pcie", Severity.SUSPECT, Remedy.INSPECT),
    ({"health_bits": 0x80}, "ixml-other", Severity.INFO, Remedy.NONE),
]


@pytest.mark.parametrize(("answers", "code", "severity", "remedy"), ROWS)
def test_each_row_is_found_out(
    answers: dict[str, Any], code: str, severity: Severity, remedy: Remedy
) -> None:
    node_ = Node()
    node_.samples(node())

    node_.samples(*[node(gpu(1, **answers))] * 3)

    (finding,) = node_.open.values()
    assert (finding.code, finding.severity, finding.remedy) == (code, severity, remedy)
    assert (finding.subject.kind, finding.subject.device) == (SubjectKind.DEVICE, "GPU-1")


def test_every_row_of_the_catalogue_is_driven_by_a_test_of_this_file() -> None:
    driven = {code for _, code, *_ in ROWS if not code.startswith("nvml-recovery-action-")}
    others = {"gpu-missing", "gpu-no-handle", "fewer-gpus", "silent", "recovery-action"}

    assert {row.code for row in GPU_HEALTH.packaged()} == driven | {f"nvml-{name}" for name in others}


@pytest.mark.parametrize(
    "answers",
    [
        {"refused": "GPU_IS_LOST"},
        {"refused": "RESET_REQUIRED"},
        {"recovery_action": 1},
        {"rows_failed": True},
        {"rows_pending": True},
        {"links": (*LINKS[:-1], False)},
        {"slowdowns": 0x80},
    ],
)
def test_a_state_that_is_over_for_two_samples_has_ended(answers: dict[str, Any]) -> None:
    node_ = Node()
    node_.samples(node(), *[node(gpu(1, **answers))] * 3)

    node_.samples(node())
    assert len(node_.open) == 1
    node_.samples(node())

    assert not node_.open
    assert all(finding.cleared_by for finding in node_.core.findings)


def test_what_iluvatars_library_said_ends_with_its_own_word_alone() -> None:
    node_ = Node()
    node_.samples(*[node(gpu(1, health_bits=0x10))] * 3)

    node_.samples(*[node(gpu(1, health_bits=None))] * 2)
    assert list(node_.open) == ["ixml-ecc"]
    node_.samples(*[node(gpu(1, health_bits=0))] * 2)

    assert not node_.open


def test_of_several_bits_of_iluvatars_library_each_ends_by_itself() -> None:
    node_ = Node()
    node_.samples(*[node(gpu(1, health_bits=0x11))] * 4)
    assert list(node_.open) == ["ixml-system-hub"]

    node_.samples(*[node(gpu(1, health_bits=0x10))] * 4)
    assert list(node_.open) == ["ixml-ecc"]
    node_.samples(*[node(gpu(1, health_bits=0))] * 2)

    assert not node_.open


@pytest.mark.parametrize(
    "nothing", [{"rows_failed": None}, {"mig_changes": True}, {"refused": "RESET_REQUIRED"}]
)
def test_no_data_ends_nothing(nothing: dict[str, Any]) -> None:
    node_ = Node()
    node_.samples(*[node(gpu(1, rows_failed=True))] * 3)

    node_.samples(*[node(gpu(1, **nothing))] * 2)

    assert "nvml-row-remap-failed" in node_.open


def test_while_the_mig_mode_changes_nothing_is_judged() -> None:
    node_ = Node()
    node_.samples(node())

    node_.samples(*[node(gpu(1, mig_changes=True, recovery_action=1, rows_failed=True))] * 10)

    assert not node_.core.findings


def test_an_error_that_is_confined_to_an_instance_does_not_hide_what_the_whole_gpu_has() -> None:
    node_ = Node()
    node_.samples(node())
    contained = f"NVRM: Xid (PCI:{pci(1)} GPU-I:05): 94, pid=1, Contained: SM (0x1). RST: No, D-RST: No"
    node_.core.kernel_line(KernelLine(1, node_.now, contained))
    assert node_.open["xid-94"].confined

    node_.samples(*[node(gpu(1, rows_failed=True))] * 5, every_s=120)

    assert not node_.open["nvml-row-remap-failed"].confined


def test_errors_from_before_the_first_sample_are_no_news_and_each_new_one_is_counted() -> None:
    node_ = Node()
    node_.samples(*[node(gpu(1, uncorrected={"SRAM": 5}))] * 3)
    assert not node_.open

    more = [{"SRAM": 6}, {"SRAM": 6}, {"SRAM": 6, "L2 cache": 1}]
    node_.samples(*(node(gpu(1, uncorrected=errors)) for errors in more), every_s=10)

    (finding,) = node_.core.findings
    assert (finding.code, finding.count, finding.cleared_at) == ("nvml-ecc-uncorrectable", 2, None)


def test_a_count_that_could_not_be_read_once_is_no_news_when_it_is_read_again() -> None:
    node_ = Node()
    node_.samples(node(gpu(1, uncorrected={"SRAM": 5})))

    node_.samples(node(gpu(1, uncorrected=None)), node(gpu(1, uncorrected={"SRAM": 5})))
    assert not node_.core.findings

    node_.samples(node(gpu(1, uncorrected=None)), node(gpu(1, uncorrected={"SRAM": 6})))
    assert list(node_.open) == ["nvml-ecc-uncorrectable"]


def test_a_gpu_that_tells_no_errors_at_first_has_news_only_after_its_first_count() -> None:
    node_ = Node()

    node_.samples(node(gpu(1, uncorrected=None)), node(gpu(1, uncorrected={"SRAM": 5})))

    assert not node_.core.findings


def test_a_driver_that_was_loaded_anew_begins_to_count_anew() -> None:
    node_ = Node()
    node_.samples(node(gpu(1, uncorrected={"SRAM": 5})))

    node_.samples(node(gpu(1, uncorrected={"SRAM": 9}, links=LINKS[:4]), driver="600.10.01"))

    assert not node_.core.findings


def test_links_that_never_were_up_are_not_missed() -> None:
    node_ = Node()

    node_.samples(*[node(gpu(1, links=(*LINKS[:-2], False, None)))] * 9)

    assert not node_.core.findings


def test_links_of_a_gpu_in_mig_mode_are_not_missed_until_they_have_been_up_again() -> None:
    off = (False,) * len(LINKS)
    node_ = Node()
    node_.samples(node())

    node_.samples(*[node(gpu(1, is_mig=True, links=off))] * 5)
    node_.samples(*[node(gpu(1, links=off))] * 5)
    assert not node_.core.findings

    node_.samples(node(), *[node(gpu(1, links=off))] * 2)
    assert list(node_.open) == ["nvml-link-down"]


def test_a_gpu_that_nvml_shows_no_more_is_suspected_by_its_place() -> None:
    node_ = Node()
    node_.samples(node())

    node_.samples(*[without(1)] * 3)

    (finding,) = node_.open.values()
    assert (finding.code, finding.severity) == ("nvml-gpu-missing", Severity.SUSPECT)
    assert (finding.subject.device, finding.subject.pci) == ("GPU-1", pci(1))
    assert len(node_.status.devices) == COUNT
    node_.samples(node(), node())
    assert not node_.open


def test_a_gpu_that_the_driver_never_could_start_is_missed_by_the_bus() -> None:
    node_ = Node(bus=BusGpus(ours=frozenset(map(place, range(COUNT)))))

    node_.samples(*[without(3)] * 3)

    assert node_.open["nvml-gpu-missing"].subject.pci == pci(3)


def test_a_gpu_that_was_given_to_a_virtual_machine_is_not_missed() -> None:
    node_ = Node()
    node_.samples(node())
    node_.bus = BusGpus(others=frozenset({place(3)}))

    node_.samples(*[without(3)] * 9)

    assert not node_.core.findings
    assert len(node_.status.devices) == COUNT - 1


def test_a_gpu_that_we_may_not_see_is_not_missed() -> None:
    node_ = Node(bus=BusGpus(ours=frozenset(map(place, range(COUNT)))))

    node_.samples(*[node(GpuSample(index=1))] * 9)

    assert not node_.core.findings


def restarted(status: NodeHealthStatus, boot_id: str) -> Node:
    node_ = Node()
    node_.core = AgentCore(AgentSettings(), boot_id=boot_id)
    node_.core.restore(status)
    return node_


def test_a_node_that_boots_with_fewer_gpus_is_suspected() -> None:
    before = Node()
    before.samples(node())
    node_ = restarted(before.status, "another-boot")

    node_.samples(*[node(count=3)] * 3)

    (finding,) = node_.open.values()
    assert (finding.code, finding.subject.kind, finding.severity) == (
        "nvml-fewer-gpus",
        SubjectKind.NODE,
        Severity.SUSPECT,
    )
    assert {"3", "4"} <= set(finding.evidence.replace(",", "").split())


def test_a_gpu_that_was_given_to_a_virtual_machine_before_the_boot_still_counts() -> None:
    before = Node()
    before.samples(node())
    node_ = restarted(before.status, "another-boot")
    node_.bus = BusGpus(ours=frozenset(map(place, range(3))), others=frozenset({place(3)}))

    node_.samples(*[without(3)] * 5)

    assert not node_.core.findings


def test_a_node_that_boots_with_as_many_gpus_or_more_is_not() -> None:
    before = Node()
    before.samples(node())
    node_ = restarted(before.status, "another-boot")

    node_.samples(*[node(count=5)] * 5)

    assert not node_.core.findings


def test_fewer_gpus_than_the_administrator_expects_are_told() -> None:
    node_ = Node(AgentSettings(nvml=Nvml(gpus_expected=8)))

    node_.samples(*[node()] * 3)

    assert "nvml-fewer-gpus" in node_.open


def test_an_agent_that_starts_again_tells_nothing_twice_and_ends_what_is_over() -> None:
    before = Node()
    before.samples(*[node(gpu(1, rows_failed=True))] * 3)
    node_ = restarted(before.status, BOOT)

    node_.samples(*[node(gpu(1, rows_failed=True))] * 5)
    assert len(node_.core.findings) == 1
    node_.samples(node(), node())
    assert not node_.open


def test_a_driver_that_is_silent_three_times_is_suspected_until_it_answers() -> None:
    node_ = Node()
    node_.samples(node())

    for times in (1, 2):
        node_.core.nvml_silent(times, "no answer", node_.now)
    assert not node_.open
    node_.core.nvml_silent(3, "no answer", node_.now)
    assert node_.open["nvml-silent"].severity is Severity.SUSPECT
    node_.samples(node(), node())

    assert not node_.open


def xid(text: str, at: datetime, sequence: int = 1) -> KernelLine:
    return KernelLine(sequence=sequence, at=at, text=f"NVRM: Xid (PCI:{pci(2)}): {text}")


def test_what_the_kernel_log_has_told_is_not_told_again() -> None:
    node_ = Node()
    node_.samples(node())
    node_.core.kernel_line(xid("79, GPU has fallen off the bus.", node_.now))

    node_.samples(*[node(LOST)] * 9)

    assert [finding.code for finding in node_.core.findings] == ["xid-79"]


def test_lost_gpus_of_which_the_kernel_log_has_told_are_no_fault_of_the_whole_node() -> None:
    """NVML no longer counts the one, and gives no handle for the other: their numbers do not tell which."""
    bus = BusGpus(ours=frozenset(map(place, range(COUNT))))
    both_lost = msgspec.structs.replace(without(1, 2), gpus=(*without(1, 2).gpus, LOST))
    node_ = Node(bus=bus)
    node_.samples(node())
    node_.core.kernel_line(xid("79, GPU has fallen off the bus.", node_.now))

    node_.samples(*[both_lost] * 9)
    assert node_.open["nvml-gpu-lost"].subject.kind is SubjectKind.NODE, "it may be GPU 1"

    node_.core.kernel_line(
        KernelLine(2, node_.now, f"NVRM: Xid (PCI:{pci(1)}): 79, GPU has fallen off the bus.")
    )
    node_.samples(*[both_lost] * 9)
    assert [one.subject.pci for one in node_.core.findings if one.cleared_at is None] == [pci(2), pci(1)]


def test_what_the_kernel_log_told_of_after_it_outlives_what_nvml_no_longer_says() -> None:
    node_ = Node()
    node_.samples(node(), *[node(LOST)] * 3)
    told = node_.open["nvml-gpu-lost"].first_seen
    node_.core.kernel_line(xid("79, GPU has fallen off the bus.", told + timedelta(seconds=1)))

    node_.samples(*[node()] * 5)

    assert node_.open["nvml-gpu-lost"].chain == ["xid-79"]


def test_after_a_repair_a_state_that_is_still_so_counts_after_its_samples_again() -> None:
    node_ = Node()
    node_.samples(*[node(gpu(1, rows_failed=True))] * 3)
    node_.core.devices_closed("repair-a-reset-1")
    node_.core.kernel_line(
        KernelLine(
            sequence=1,
            at=node_.now,
            text=f"NVRM: Xid (PCI:{pci(1)}): 154, GPU recovery action changed from 0x1 (GPU Reset Required) "
            "to 0x0 (None)",
        )
    )
    node_.core.devices_closed("")
    assert not node_.open

    node_.samples(*[node(gpu(1, rows_failed=True))] * 2)

    assert "nvml-row-remap-failed" in node_.open


def test_a_users_row_changes_what_a_state_means() -> None:
    row = next(row for row in GPU_HEALTH.packaged() if row.code == "nvml-power-brake")
    graver = msgspec.structs.replace(row, severity=Severity.SUSPECT, samples=1)
    node_ = Node()
    node_.core = AgentCore(
        AgentSettings(), boot_id=BOOT, gpu_health=GpuHealth(UserRows({"gpu_health": (graver,)}))
    )

    node_.samples(node(gpu(1, slowdowns=0x80)))

    assert node_.open["nvml-power-brake"].severity is Severity.SUSPECT


# --- quiet ------------------------------------------------------------------------------------------------


idle_or_busy = st.builds(
    dict,
    slowdowns=st.sampled_from([0, 1, 4, 0x10, 0x20, 0x100]),
    margin_c=st.integers(5, 60),
    free_bytes=st.integers(0, 2**36),
    is_persistent=st.sampled_from([True, None]),
    mig_changes=st.booleans(),
    mig_devices=st.sampled_from([{}, {"MIG-1": 1}, {"MIG-1": 1, "MIG-2": None}]),
)
"""Answers of healthy GPUs at work, at rest and while they are partitioned."""
healthy = st.lists(idle_or_busy, min_size=COUNT, max_size=COUNT).map(
    lambda answers: node(*(gpu(number, **one) for number, one in enumerate(answers)))
)
unloading = st.sampled_from([without(0), without(0, 1), Sample(), node(LOST)])
"""A sample in the middle of an unload or a load, which lasts for fewer than three samples."""


@settings(deadline=None, max_examples=50)
@given(st.lists(healthy, min_size=10, max_size=20), st.data())
def test_healthy_nodes_give_no_finding_over_loads_and_mig_changes(
    samples: list[Sample], data: st.DataObject
) -> None:
    node_ = Node(bus=BusGpus(ours=frozenset(map(place, range(COUNT)))))
    for number, sample in enumerate(samples):
        if number % 7 == 3:
            node_.samples(*data.draw(st.lists(unloading, max_size=2)))
        node_.samples(sample)

    assert not node_.core.findings


answer = st.fixed_dictionaries(
    {},
    optional={
        "refused": st.sampled_from(["", "GPU_IS_LOST", "RESET_REQUIRED", "UNKNOWN", "999"]),
        "pci": st.sampled_from(["", "0000:10:00.0", "?", "0000:20:00.0"]),
        "rows_failed": st.booleans() | st.none(),
        "uncorrected": st.dictionaries(st.text(max_size=5), st.integers(-5, 2**63), max_size=3),
        "links": st.lists(st.booleans() | st.none(), max_size=40).map(tuple),
        "recovery_action": st.integers(-5, 2**32) | st.none(),
        "fabric_state": st.integers(0, 300) | st.none(),
        "fabric_health": st.integers(0, 2**32) | st.none(),
        "replays": st.integers(-5, 2**32) | st.none(),
        "slowdowns": st.integers(0, 2**64) | st.none(),
        "pcie_width": st.integers(0, 2**32) | st.none(),
    },
)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(answer, max_size=3), max_size=4))
def test_whatever_nvml_says_the_status_can_be_written(samples: list[list[dict[str, Any]]]) -> None:
    node_ = Node()
    for answers in samples:
        gpus = tuple(msgspec.structs.replace(gpu(n), **one) for n, one in enumerate(answers))
        node_.samples(Sample(driver_version="1", gpus=gpus))

    encoded = msgspec.json.encode(node_.status)
    assert msgspec.json.decode(encoded, type=NodeHealthStatus) == node_.status
