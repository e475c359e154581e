"""Tests reports of Ascend's and Iluvatar's device plugins, from the ConfigMap to the effect: the node is
quarantined, is only a suspect, or is only reported. The ConfigMaps follow the vendors' documentation; they
were never seen on hardware."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from detectors.service.settings import SettingsError
from detectors.wire.contract import Fault, Origin, Severity
from recover.diagnose.what_counts import proven, suspected
from recover.model import Node, NodeSignal, ascend, iluvatar
from recover.model.device_reports import Part, Reports
from recover.policy.device_levels import LevelCatalogue, dated, packaged_levels
from recover.policy.faults import QuarantineLevel, policies
from recover.policy.settings import DeviceReports, LevelRow
from tests.acting import recovering
from tests.builders import NOW, Worlds, cluster, gang
from tests.device_plugins import device_info, fault, free_devices, node_info, switch_info

NPU = "huawei.com/Ascend910"
WINDOW_S = 3600.0
LONG_AGO_S = 300.0
RAISED = DeviceReports(
    ascend=True,
    chip={
        row.name: LevelRow(Severity.FATAL)
        for row in packaged_levels().level
        if row.part is Part.CHIP and row.severity is Severity.SUSPECT
    },
    switch={"Separate": LevelRow(Severity.FATAL, Fault.NVSWITCH)},
    node={"SeparateFault": LevelRow(Severity.FATAL)},
)


def signals(
    node: Node,
    data: Mapping[str, Mapping[str, str]],
    settings: DeviceReports | None = None,
    *,
    seen: datetime = NOW,
) -> tuple[NodeSignal, ...]:
    """Returns the signals of this node's ConfigMaps. `data` has their names without the node's name."""
    said = [ascend.read(f"{name}{node.name}", one) for name, one in data.items()]
    said += [iluvatar.read(f"{name}{node.name}", one) for name, one in data.items()]
    found = LevelCatalogue(settings or DeviceReports(ascend=True)).read(node, [one for one in said if one])
    return tuple(dated(one, seen, NOW) for one in found)


def chips(*faults: dict[str, Any], **lists: Any) -> dict[str, dict[str, str]]:
    return {"mindx-dl-deviceinfo-": {"DeviceInfoCfg": device_info(*faults, **lists)}}


def reporting(
    level: str,
    settings: DeviceReports | None = None,
    *,
    ago_s: float | None = LONG_AGO_S,
    codes: tuple[str, ...] = ("80E18402",),
    listed: bool = True,
    short: bool = True,
    **more: Any,
) -> Worlds:
    """Returns a gang on four nodes. The plugin of n1 gives a chip this level."""
    world = cluster().running(gang())
    world.change_node("n1", capacity={NPU: 8}, allocatable={NPU: 7 if short else 8})
    at = None if ago_s is None else world.now - timedelta(seconds=ago_s)
    row = fault("Ascend910-4", level, codes, at, **more)
    told = chips(row, unhealthy=["Ascend910-4"] if listed else [])
    return world.change_node("n1", signals=signals(world.nodes["n1"], told, settings))


SUSPECTED = ["FreeRestartNPU", "RestartNPU", "PreSeparateNPU", "SeparateNPU", "ManuallySeparateNPU"]
TOLD = ["NotHandleFault", "SubHealthFault", "RestartRequest", "RestartBusiness", "ALevelOfTomorrow"]


@pytest.mark.parametrize("level", SUSPECTED)
def test_by_default_a_serious_level_makes_other_nodes_preferable_and_nothing_else(level: str) -> None:
    world = reporting(level)

    assert suspected(world.world(), world.now, WINDOW_S) == {"n1": f"report-{level}"}
    assert not proven(world.world(), world.now)
    recovering(world.later(3600))
    assert not world.recoveries
    assert not world.incidents


@pytest.mark.parametrize("level", TOLD)
def test_a_level_that_training_survives_or_mends_is_only_told(level: str) -> None:
    world = reporting(level)

    assert [one.severity for one in world.nodes["n1"].signals] == [Severity.INFO]
    assert not suspected(world.world(), world.now, WINDOW_S)


@pytest.mark.parametrize("level", ["SeparateNPU", "ManuallySeparateNPU"])
def test_a_level_that_people_have_raised_takes_the_node_out_and_moves_the_gang(level: str) -> None:
    world = reporting(level, RAISED)

    decision = world.decide()

    assert decision.cordons == ["n1"]
    assert decision.restarts == ["llm"]
    (evidence,) = decision.incident.status.evidence
    assert (evidence.origin, evidence.code) == (Origin.VENDOR, f"report-{level}")
    assert "Ascend910-4" in evidence.text
    assert decision.incident.spec.fault is Fault.MEMORY_DEGRADED, "the class of the fault code"


@pytest.mark.parametrize(
    ("doubt", "why"),
    [
        ({"ago_s": None}, "the report does not say when the fault began"),
        ({"codes": ("A8028801",)}, "none of its fault codes is known"),
        ({"listed": False}, "the plugin does not list the chip as unhealthy"),
        ({"short": False}, "all chips of the node are allocatable"),
        ({"kind": "PublicFault"}, "not the driver but another program reported the fault"),
    ],
)
def test_a_raised_level_is_a_suspicion_where_one_of_its_witnesses_is_missing(
    doubt: dict[str, Any], why: str
) -> None:
    world = reporting("SeparateNPU", RAISED, **doubt)

    (found,) = world.nodes["n1"].signals
    assert found.severity is Severity.SUSPECT
    assert f"your settings make this more than a suspicion, but {why}" in found.reason
    assert world.decide().cordons == []
    assert list(suspected(world.world(), world.now + timedelta(seconds=60), WINDOW_S)) == ["n1"]


def test_a_raised_level_harms_only_the_gangs_whose_pods_hold_the_chip() -> None:
    world = reporting("SeparateNPU", RAISED)
    (uid,) = [uid for uid, pod in world.pods["llm-uid"].items() if pod.node == "n1"]
    there = world.pods["llm-uid"][uid]

    def holding(chip: str) -> list[str]:
        held = {"huawei.com/AscendReal": chip}
        pod = msgspec.structs.replace(there, annotations=held, accelerators=1, requests=((NPU, 1),))
        world.pods["llm-uid"][uid] = pod
        return world.decide().restarts

    assert holding("Ascend910-3") == []
    assert holding("Ascend910-4") == ["llm"]
    assert holding("garbled") == ["llm"], "a pod of which nobody knows the chips may hold any"


def test_switches_and_parts_of_the_server_concern_the_whole_node() -> None:
    world = cluster().running(gang())
    at = world.now - timedelta(seconds=LONG_AGO_S)
    code = "[0x00f103b0,155904,na,na]"
    data = {
        "mindx-dl-deviceinfo-": {
            "DeviceInfoCfg": device_info(),
            "SwitchInfoCfg": switch_info({code: "Separate"}, at),
        },
        "mindx-dl-nodeinfo-": {"NodeInfo": node_info(("CPU", 1, "SeparateFault", ["00000011"]))},
    }
    node = world.nodes["n1"]

    by_default = {one.code: one.severity for one in signals(node, data)}
    raised = {one.code: one.severity for one in signals(node, data, RAISED)}

    assert by_default == {
        "report-switch-Separate": Severity.SUSPECT,
        "report-node-SeparateFault": Severity.SUSPECT,
    }
    assert raised["report-switch-Separate"] is Severity.FATAL
    assert raised["report-node-SeparateFault"] is Severity.SUSPECT, "NodeD tells no time"
    world.change_node("n1", signals=signals(node, data, RAISED))
    assert world.decide().cordons == ["n1"]


@pytest.mark.parametrize(
    ("left", "whole", "free", "told"),
    [
        (7, 8, ["GPU-1"], [Severity.SUSPECT]),
        (7, 8, [], [Severity.SUSPECT]),
        (8, 8, [], []),
        (0, 8, [], []),
        (0, 0, [], []),
        (7, 8, list("abcdefgh"), []),
    ],
    ids=["one is broken", "and all in use", "healthy, in use", "plugin starts", "none", "the kubelet lags"],
)
def test_iluvatars_node_is_suspect_where_some_of_its_devices_are_not_offered(
    left: int, whole: int, free: list[str], told: list[Severity]
) -> None:
    name = "iluvatar.com/gpu"
    world = cluster().change_node("n1", capacity={name: whole}, allocatable={name: left})
    found = signals(
        world.nodes["n1"], {"ix-device-info-cm-": free_devices(free)}, DeviceReports(iluvatar=True)
    )

    assert [one.severity for one in found] == told
    world.change_node("n1", signals=found)
    assert not suspected(world.world(), world.now + timedelta(seconds=179), WINDOW_S)
    assert len(suspected(world.world(), world.now + timedelta(seconds=180), WINDOW_S)) == len(told)


def test_what_is_reported_twice_counts_once_and_a_clock_that_runs_ahead_counts_from_when_it_was_seen() -> (
    None
):
    node = cluster().nodes["n1"]
    ahead = NOW + timedelta(days=3)
    row = fault("Ascend910-4", "SeparateNPU", at=ahead)
    once = Reports(
        {"n1": ascend.read("mindx-dl-deviceinfo-n1", chips(row)["mindx-dl-deviceinfo-"]).faults["n1"]}
    )  # type: ignore[union-attr]

    (found,) = LevelCatalogue(DeviceReports(ascend=True)).read(node, [once, once])

    assert dated(found, NOW, NOW + timedelta(minutes=1)).since == NOW


def test_each_packaged_row_is_a_suspicion_at_most_names_its_source_and_can_be_acted_on_once_raised() -> None:
    rows = packaged_levels()
    for row in (*rows.level, *rows.resource):
        assert row.severity in (Severity.INFO, Severity.SUSPECT), row.name
        assert row.source
        assert row.meaning
        if row.severity is Severity.SUSPECT:
            assert policies()[row.fault].quarantine is QuarantineLevel.CORDON, row.name
            assert row.settles_s >= 20, row.name
    assert len({(row.part, row.name) for row in rows.level}) == len(rows.level)
    assert len({row.code for row in rows.code}) == len(rows.code)
    assert all(row.code == row.code.upper() and row.meaning for row in rows.code)


def test_a_level_that_no_plugin_reports_is_refused_with_those_that_are() -> None:
    with pytest.raises(
        SettingsError, match=r"signals\.reports\.chip: 'SeperateNPU': expected one of .*SeparateNPU"
    ):
        LevelCatalogue(DeviceReports(chip={"SeperateNPU": LevelRow(Severity.FATAL)}))


def quiet_life() -> list[tuple[float, Mapping[str, Mapping[str, str]]]]:
    """Returns the ConfigMaps of a healthy node in a week, as pairs of the seconds since the beginning and
    the content."""
    names = [f"Ascend910-{number}" for number in range(8)]

    def told(*faults: dict[str, Any], **lists: Any) -> Mapping[str, Mapping[str, str]]:
        return chips(*faults, free=names, **lists)

    def at(second: float) -> datetime:
        return NOW + timedelta(seconds=second)

    life: list[tuple[float, Mapping[str, Mapping[str, str]]]] = []
    for hour in range(112):
        begin = hour * 3600.0
        life += [(begin + 300 * turn, told(update_time=int(begin) + turn)) for turn in range(9)]
        # The plugin is restarted or upgraded: it writes an empty list, then no ConfigMap, then one of an old
        # version.
        life += [
            (begin + 2701, {"mindx-dl-deviceinfo-": {"DeviceInfoCfg": device_info()}}),
            (begin + 2702, {}),
            (
                begin + 2705,
                {
                    "mindx-dl-deviceinfo-": {
                        "DeviceInfoCfg": '{"DeviceInfo":{"DeviceList":{},"UpdateTime":1}}'
                    }
                },
            ),
        ]
        # A link is down for 40 s. The plugin's rule raises its level from 20 s to 100 s after that.
        down = begin + 2800
        flap = dict.fromkeys(["81078603"], "NotHandleFault")
        life += [
            (
                down,
                told(
                    fault("Ascend910-2", "NotHandleFault", flap, at(down), kind="CardNetworkUnhealthy"),
                    network=["Ascend910-2"],
                ),
            ),
            (
                down + 20,
                told(
                    fault(
                        "Ascend910-2", "PreSeparateNPU", ["81078603"], at(down), kind="CardNetworkUnhealthy"
                    ),
                    network=["Ascend910-2"],
                ),
            ),
            (down + 100, told()),
        ]
        # A chip is reset, at first before the plugin reports the reset; the events of the plugin show no
        # fault.
        reset = begin + 3000
        row = fault("Ascend910-5", "RestartNPU", ["80CF8000"], at(reset))
        life += [
            (reset, told(row, unhealthy=["Ascend910-5"])),
            (reset + 10, told(row, unhealthy=["Ascend910-5"], recovering=["Ascend910-5"])),
            (reset + 150, told(unhealthy=["Ascend910-5"])),
            (reset + 160, told(fault("Ascend910-5", "NotHandleFault", ["8C2FA009"], at(reset + 160)))),
            (reset + 220, told()),
        ]
        # A process of the tenant fails, and corrected errors are counted.
        life += [
            (begin + 3400, told(fault("Ascend910-1", "RestartBusiness", ["80CB8002"], at(begin + 3400)))),
            (begin + 3410, told(fault("Ascend910-1", "SubHealthFault", ["80E18400"], at(begin + 3410)))),
            (
                begin + 3420,
                {"mindx-dl-nodeinfo-": {"NodeInfo": node_info(("PSU", 4, "NotHandleFault", ["0300000D"]))}},
            ),
        ]
    return life


def test_the_quiet_life_of_a_healthy_node_makes_it_neither_suspect_nor_broken() -> None:
    """The test plays over 2,000 records of ConfigMaps, which follow the documentation of the plugins and
    their shipped rules."""
    world = cluster()
    world.change_node("n1", capacity={NPU: 8}, allocatable={NPU: 7})
    node, seen = world.nodes["n1"], dict[str, datetime]()
    life = quiet_life()
    assert len(life) > 2000
    for settings in (DeviceReports(ascend=True, iluvatar=True), RAISED):
        levels = LevelCatalogue(settings)
        begin = world.now
        for (second, data), (following, _) in zip(life, [*life[1:], (life[-1][0] + 60, {})], strict=True):
            said = [ascend.read(f"{name}n1", one) for name, one in data.items()]
            told = levels.read(node, [one for one in said if one is not None])
            now = begin + timedelta(seconds=second)
            seen = {one.place: seen.get(one.place, now) for one in told}
            world.change_node("n1", signals=tuple(dated(one, seen[one.place], now) for one in told))
            last = begin + timedelta(seconds=following - 0.001)
            assert not suspected(world.world(), last, WINDOW_S), (second, data)
            assert not proven(world.world(), last), (second, data)
