"""Tests which samples of the ports become a finding, and what ends the finding."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from detectors.folds.core import Dirty
from detectors.rules.fabric_ports import Port
from detectors.rules.fabric_rows import fabric_rows
from detectors.rules.facts import PodRef
from detectors.wire.contract import CoverageState, Fault, Origin, Remedy, Severity, Source, SubjectKind
from tests.detectors.folds.ports import (
    ARMED,
    DISABLED,
    HIDDEN,
    INIT,
    OFF,
    POLLING,
    UNPLUGGED,
    Node,
    agent,
    ib,
    roce,
)


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.mark.parametrize(
    ("healthy", "lost"),
    [
        (ib(), ib(**POLLING)),
        (ib(), ib(**INIT)),
        (ib(), ib(**ARMED)),
        (ib(), ib(**DISABLED)),
        (roce(), roce(**UNPLUGGED)),
    ],
    ids=["no link", "init", "armed", "disabled", "no carrier"],
)
def test_a_port_that_was_active_makes_its_node_suspect_from_the_second_sample_on(
    node: Node, healthy: Port, lost: Port
) -> None:
    node.sample(healthy, ib(1), times=4)

    assert node.sample(lost, ib(1)) == []
    assert node.sample(lost, ib(1)) == ["port-down"]
    (found,) = node.core.findings
    assert (found.subject.kind, found.subject.pci) == (SubjectKind.ADAPTER, "0000:0d:00.0")
    assert (found.severity, found.fault, found.origin) == (Severity.SUSPECT, Fault.NETWORK, Origin.DRIVER)
    assert (found.remedy, found.boot_id) == (Remedy.INSPECT, "boot")
    assert found.id.startswith("boot-fabric-")


def test_it_began_with_the_first_sample_that_showed_it(node: Node) -> None:
    node.sample(ib(), times=4)
    node.sample(ib(**POLLING))
    began = node.now
    node.sample(ib(**POLLING))

    (found,) = node.core.findings
    assert (found.first_seen, found.last_seen) == (began, node.now)


def test_it_is_told_once_and_ends_when_the_port_was_active_for_long(node: Node) -> None:
    node.sample(ib(), times=4)
    node.sample(ib(**POLLING), minutes=60)
    assert (node.writes, len(node.core.findings)) == (1, 1)

    node.sample(ib(), minutes=4)
    assert node.open() == ["port-down"]
    node.sample(ib(), minutes=2)

    assert node.open() == []
    assert node.writes == 2
    (found,) = node.core.findings
    assert found.cleared_by


def test_a_port_that_comes_and_goes_in_less_than_minutes_is_one_finding(node: Node) -> None:
    node.sample(ib(), times=4)
    for _ in range(30):
        node.sample(ib(**POLLING), times=3)
        node.sample(ib(), times=4)

    assert [f.code for f in node.core.findings] == ["port-down"]


@pytest.mark.parametrize("port", [ib(**POLLING), ib(**DISABLED), roce(**UNPLUGGED), roce(**OFF)])
def test_a_port_that_was_never_active_in_this_boot_says_nothing(node: Node, port: Port) -> None:
    node.rank()
    node.sample(port, ib(1), minutes=60)

    assert node.core.findings == []


@pytest.mark.parametrize("away", [OFF, HIDDEN], ids=["switched off", "in a pod"])
def test_an_ethernet_port_that_is_off_or_in_a_pod_is_no_fault(node: Node, away: dict[str, object]) -> None:
    node.rank()
    node.sample(roce(), times=4)
    node.sample(roce(**away), minutes=60)
    node.ends()
    node.leaves()
    node.sample(roce(**away), minutes=60)

    assert node.core.findings == []


# --- dead under a rank ------------------------------------------------------------------------------------


def died(node: Node, lost: Port, healthy: Port) -> None:
    node.rank()
    node.step(1)
    node.sample(healthy, times=4)
    node.step(2)
    node.sample(lost, times=3)


@pytest.mark.parametrize(("lost", "healthy"), [(ib(**POLLING), ib()), (roce(**UNPLUGGED), roce())])
def test_a_dead_port_whose_rank_ends_takes_the_node_out(node: Node, lost: Port, healthy: Port) -> None:
    died(node, lost, healthy)
    node.ends()

    assert node.sample(lost) == ["port-down"]
    assert node.sample(lost) == ["port-dead", "port-down"]
    dead = node.core.findings[-1]
    assert (dead.severity, dead.fault, dead.remedy) == (Severity.FATAL, Fault.NETWORK, Remedy.INSPECT)
    assert (dead.subject.pci, dead.final) == ("0000:0d:00.0", False)


def test_a_helper_that_is_started_again_beside_the_training_proves_nothing(node: Node) -> None:
    """The last step was a while ago, so no step has shown yet that the training needs no port."""
    died(node, ib(**POLLING), ib())
    node.line("uploads", "helper")
    node.ends(container="helper")

    assert node.sample(ib(**POLLING), times=4) == ["port-down"]
    node.ends()
    assert node.sample(ib(**POLLING)) == ["port-dead", "port-down"]


def test_a_rank_that_is_started_again_beside_a_helper_has_ended(node: Node) -> None:
    died(node, ib(**POLLING), ib())
    node.line("uploads", "helper")
    node.ends()
    node.core.log_line(PodRef("ml", "rank-0", "rank-0", "main", 1), "import torch", node.now)

    assert node.sample(ib(**POLLING), times=2) == ["port-dead", "port-down"]


@pytest.mark.parametrize("hours", [-8, 8])
def test_a_clock_that_is_set_hides_no_dead_port(node: Node, hours: float) -> None:
    """A node whose hardware clock has local time is hours ahead until NTP corrects the clock."""
    node.rank()
    node.sample(ib(), times=4)
    node.clock_set(hours=hours)
    node.sample(ib(), times=4)
    node.sample(ib(**POLLING), times=3)
    node.ends()

    assert node.sample(ib(**POLLING), times=3) == ["port-dead", "port-down"]


@pytest.mark.parametrize("hours", [-8, 8])
def test_a_clock_that_is_set_while_a_port_is_down_makes_it_no_deader(node: Node, hours: float) -> None:
    died(node, ib(**POLLING), ib())
    node.clock_set(hours=hours)
    node.ends()

    assert node.sample(ib(**POLLING)) == ["port-down"]
    assert node.sample(ib(**POLLING), times=2) == ["port-dead", "port-down"]


@pytest.mark.parametrize("hours", [-8, 8])
def test_a_link_that_still_trains_is_not_judged_because_the_clock_was_set(hours: float) -> None:
    node = Node(up_s=0.0)
    node.sample(ib(), times=2)
    node.clock_set(hours=hours)
    node.sample(ib(**POLLING), times=10)

    assert node.core.findings == []


def test_a_rank_whose_pod_is_gone_has_ended_though_its_log_was_never_read(node: Node) -> None:
    node.rank()
    node.sample(ib(), times=4)
    node.sample(ib(**POLLING), minutes=10)
    assert node.open() == ["port-down"]

    node.leaves()

    assert node.sample(ib(**POLLING)) == ["port-dead", "port-down"]


def test_a_gang_that_still_makes_steps_is_not_stopped(node: Node) -> None:
    died(node, ib(**POLLING), ib())
    for number in range(3, 60):
        node.step(number)
        node.sample(ib(**POLLING), times=3)

    assert node.open() == ["port-down"]


@pytest.mark.parametrize("leaves", [False, True], ids=["its container ends", "its pod is gone"])
def test_a_rank_that_made_steps_without_the_port_ends_for_another_reason(node: Node, leaves: bool) -> None:
    """One cable of a bond is disconnected, and the training comes to its end hours later."""
    died(node, roce(**UNPLUGGED), roce())
    for number in range(3, 33):
        node.step(number)
        node.sample(roce(**UNPLUGGED), times=4)
    node.leaves() if leaves else node.ends()
    node.sample(roce(**UNPLUGGED), minutes=60)

    assert node.open() == ["port-down"]


def test_a_rank_whose_steps_nobody_reads_and_that_ends_hours_later_has_not_ended_of_the_port(
    node: Node,
) -> None:
    node.rank()
    node.sample(ib(), times=4)
    node.sample(ib(**POLLING), minutes=180)
    node.ends()
    node.sample(ib(**POLLING), minutes=5)
    node.leaves()

    assert node.sample(ib(**POLLING), minutes=5) == ["port-down"]


def test_a_rank_of_another_pod_that_made_steps_proves_nothing_of_the_one_that_hangs(node: Node) -> None:
    node.rank("rank-0", "other")
    node.step(1)
    node.step(1, "other")
    node.sample(ib(), times=4)
    for number in range(3, 33):
        node.step(number, "other")
        node.sample(ib(**POLLING), times=4)
    assert node.open() == ["port-down"]
    node.ends()

    assert node.sample(ib(**POLLING)) == ["port-dead", "port-down"]


def test_a_gang_whose_steps_stopped_with_the_link_takes_the_node_out(node: Node) -> None:
    node.rank()
    for number in range(8):
        node.step(number)
        node.sample(ib(), times=2)
    node.sample(ib(**POLLING), times=7)
    assert node.open() == ["port-down"], "the next line with a step is not due yet"

    node.sample(ib(**POLLING), times=8)

    assert node.open() == ["port-dead", "port-down"]


def test_a_gang_whose_steps_nobody_reads_goes_on_as_long_as_its_pods_run(node: Node) -> None:
    node.rank()
    node.sample(ib(), times=4)

    assert node.sample(ib(**POLLING), minutes=120) == ["port-down"]


def test_a_port_that_died_without_a_rank_is_only_down_also_when_a_rank_comes_and_goes(node: Node) -> None:
    node.sample(ib(), times=4)
    node.sample(ib(**POLLING), minutes=5)
    node.rank()
    node.sample(ib(**POLLING), minutes=5)
    node.ends()
    node.leaves()

    assert node.sample(ib(**POLLING), minutes=5) == ["port-down"]


@pytest.mark.parametrize("lost", [ib(**DISABLED), ib(**INIT)], ids=["disabled", "no subnet manager"])
def test_a_port_without_a_lost_link_is_not_dead(node: Node, lost: Port) -> None:
    died(node, lost, ib())
    node.ends()

    assert node.sample(lost, minutes=30) == ["port-down"]


def test_a_link_that_is_back_within_a_minute_is_not_dead(node: Node) -> None:
    died(node, ib(**POLLING), ib())
    node.ends()
    node.sample(ib(), minutes=30)

    assert "port-dead" not in node.loud()


# --- flaps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("port", [ib, roce])
def test_a_link_that_goes_down_twice_in_five_minutes_flaps(node: Node, port: Callable[..., Port]) -> None:
    node.sample(port(downs=3), times=4)
    node.sample(port(downs=4), times=8)
    node.sample(port(downs=5), times=2)
    assert node.open() == [], "the pod that caused it may be noticed a moment later"

    assert node.sample(port(downs=5)) == ["port-flaps"]
    assert node.sample(port(downs=5), minutes=25) == ["port-flaps"]
    assert node.sample(port(downs=5), minutes=10) == []
    assert node.writes == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [(21, 0), (0, 3)],
    ids=["more than five minutes apart", "a burst"],
)
def test_links_that_go_down_far_apart_or_in_one_burst_do_not_flap(
    node: Node, first: int, second: int
) -> None:
    node.sample(roce(downs=3), times=4)
    node.sample(roce(downs=4), times=first or 1)
    node.sample(roce(downs=5), times=1)
    node.sample(roce(downs=5 + second), minutes=10)

    assert node.core.findings == []


@pytest.mark.parametrize("before", [True, False], ids=["before the sample", "after the sample"])
def test_links_that_go_down_when_pods_come_and_go_do_not_flap(node: Node, before: bool) -> None:
    node.sample(roce(downs=3), times=4)
    for downs in range(4, 24):
        if before:
            node.pods_change()
        node.sample(roce(downs=downs))
        if not before:
            node.pods_change()
        node.sample(roce(downs=downs), times=5)

    assert node.core.findings == []


def test_a_counter_that_was_reset_is_no_flap(node: Node) -> None:
    node.sample(ib(downs=200), times=4)
    node.sample(ib(downs=0), times=6)
    node.sample(ib(downs=200), times=1)
    node.sample(ib(downs=0), minutes=10)

    assert "port-flaps" not in node.open()


# --- notes ------------------------------------------------------------------------------------------------


def test_a_link_with_errors_is_a_note_that_costs_no_write_of_its_own(node: Node) -> None:
    node.sample(ib(errors=100), times=4)

    assert node.sample(ib(errors=300), times=4) == ["port-errors"]
    assert (node.writes, node.core.dirty) == (0, Dirty.COARSE)
    assert node.core.findings[0].severity is Severity.INFO
    assert node.sample(ib(errors=300), minutes=150) == []
    assert node.writes == 0


@pytest.mark.parametrize("slow", [ib(rate_gbps=200.0), ib(rate_gbps=100.0)])
def test_a_port_that_was_faster_than_now_is_a_note(node: Node, slow: Port) -> None:
    node.sample(ib(), ib(1), times=4)
    node.sample(slow, ib(1), minutes=6)

    assert node.open() == ["port-slow"]
    assert node.sample(ib(), ib(1)) == []


def test_a_port_that_is_slower_than_all_others_of_its_board_is_a_note(node: Node) -> None:
    assert node.sample(ib(rate_gbps=200.0), ib(1), ib(2), minutes=6) == ["port-slow"]
    assert (node.core.findings[0].subject.pci, node.writes) == ("0000:0d:00.0", 0)


@pytest.mark.parametrize(
    "ports",
    [
        (roce(rate_gbps=25.0, model="MT_0080"), roce(1), roce(2)),
        (ib(rate_gbps=200.0), ib(1)),
        (roce(rate_gbps=100.0), ib(1), ib(2)),
        (ib(rate_gbps=200.0), ib(1, rate_gbps=200.0), ib(2)),
    ],
    ids=["another board", "one peer", "another link layer", "half of them"],
)
def test_ports_that_were_never_faster_may_be_slower_than_others(node: Node, ports: tuple[Port, ...]) -> None:
    assert node.sample(*ports, minutes=30) == []


# --- adapters that are gone -------------------------------------------------------------------------------


def test_an_adapter_that_leaves_the_bus_makes_its_node_suspect_until_it_is_back(node: Node) -> None:
    node.rank()
    node.sample(ib(), ib(1), times=4)
    node.sample(ib(1), gone=["0000:0d:00.0"], times=4)
    assert node.open() == []

    assert node.sample(ib(1), gone=["0000:0d:00.0"]) == ["adapter-gone"]
    assert node.sample(ib(1), gone=["0000:0d:00.0"], minutes=60) == ["adapter-gone"]
    assert node.core.findings[0].severity is Severity.SUSPECT
    assert node.sample(ib(), ib(1)) == []
    assert node.writes == 2


# --- rows of users ---------------------------------------------------------------------------------------


def test_a_users_row_changes_what_a_state_means() -> None:
    row = msgspec.structs.replace(fabric_rows()["port-down"], severity=Severity.INFO)
    node = Node(core=agent(row))
    node.sample(ib(), times=4)

    assert node.sample(ib(**POLLING), times=4) == ["port-down"]
    assert (node.loud(), node.writes) == ([], 0)


# --- boots, restarts of the agent, coverage ---------------------------------------------------------------


def test_a_restarted_agent_goes_on_with_what_is_open(node: Node) -> None:
    node.sample(ib(), times=4)
    node.sample(ib(**POLLING), times=4)
    core = agent()
    core.restore(node.core.status(node.now))
    after = Node(up_s=7200, core=core)

    assert after.sample(ib(**POLLING), minutes=10) == ["port-down"]
    assert (after.writes, len(core.findings)) == (0, 1)
    assert after.sample(ib(), minutes=6) == []


def test_a_boot_begins_a_new_baseline(node: Node) -> None:
    node.sample(ib(), times=4)
    node.core.new_boot("next")
    node.sample(ib(**POLLING), minutes=30)

    assert node.core.findings == []


def test_a_driver_that_is_loaded_again_between_two_samples_begins_a_new_baseline(node: Node) -> None:
    node.sample(ib(registration=7), times=4)

    assert node.sample(ib(registration=8, **POLLING), minutes=4.5) == []
    assert node.sample(ib(registration=8, **POLLING), minutes=3) == ["port-down"]


def test_only_what_is_seen_to_be_over_ends(node: Node) -> None:
    node.sample(ib(), times=4)
    node.sample(ib(**POLLING), times=4)

    assert node.sample(minutes=30) == ["port-down"]
    assert node.sample(ib(), minutes=30) == []


def test_where_findings_find_no_room_they_are_not_made_again_at_each_sample(node: Node) -> None:
    ports = [ib(number) for number in range(80)]
    node.sample(*ports, times=4)
    node.sample(*(ib(number, **POLLING) for number in range(80)), minutes=5)
    writes = node.writes
    node.sample(*(ib(number, **POLLING) for number in range(80)), minutes=30)

    assert node.writes == writes


def test_ten_quiet_minutes_cost_no_write(node: Node) -> None:
    ports = [*(ib(number) for number in range(8)), roce(8), roce(9, **OFF)]
    node.sample(*ports)
    node.core.cover(Source.FABRIC, CoverageState.COVERED, node.now)
    node.core.mark_written()

    node.sample(*ports, minutes=10)
    node.core.cover(Source.FABRIC, CoverageState.COVERED, node.now)

    assert node.core.dirty is Dirty.NOTHING
