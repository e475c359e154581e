"""Tests MindCluster's ConfigMaps as its documentation shows them; they were never seen on hardware."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recover.model import ascend
from recover.model.device_reports import Part, ReportedFault, Reports, told_time
from tests.device_plugins import device_info, fault, node_info, switch_info

AT = datetime(2025, 4, 9, 2, 57, 35, 784000, tzinfo=UTC)
DOCUMENTED = (
    r'{"DeviceInfo":{"DeviceList":{"huawei.com/Ascend910":"Ascend910-0,Ascend910-1,Ascend910-2,Ascend910-3,'
    r'Ascend910-5,Ascend910-6,Ascend910-7","huawei.com/Ascend910-Fault":"[{\"fault_type\":'
    r"\"CardNetworkUnhealthy\",\"npu_name\":\"Ascend910-0\",\"large_model_fault_level\":\"PreSeparateNPU\","
    r"\"fault_level\":\"PreSeparateNPU\",\"fault_handling\":\"PreSeparateNPU\",\"fault_code\":\"81078603\","
    r"\"fault_time_and_level_map\":{\"81078603\":{\"fault_time\":1744168468259,\"fault_level\":"
    r"\"PreSeparateNPU\"}}},{\"fault_type\":\"CardUnhealthy\",\"npu_name\":\"Ascend910-4\","
    r"\"large_model_fault_level\":\"SeparateNPU\",\"fault_level\":\"SeparateNPU\",\"fault_handling\":"
    r"\"SeparateNPU\",\"fault_code\":\"A8028801,A4028801,80E18402,80E18401\",\"fault_time_and_level_map\":"
    r"{\"80E18401\":{\"fault_time\":1744167455784,\"fault_level\":\"NotHandleFault\"},\"80E18402\":"
    r"{\"fault_time\":1744167455784,\"fault_level\":\"SeparateNPU\"},\"A4028801\":{\"fault_time\":"
    r"1744167455784,\"fault_level\":\"NotHandleFault\"},\"A8028801\":{\"fault_time\":1744167455784,"
    r'\"fault_level\":\"SeparateNPU\"}}}]","huawei.com/Ascend910-NetworkUnhealthy":"Ascend910-0",'
    r'"huawei.com/Ascend910-Recovering":"","huawei.com/Ascend910-Unhealthy":"Ascend910-4"},"UpdateTime":'
    r'1744182144},"SuperPodID":-2,"ServerIndex":-2,"CheckCode":'
    r'"a550811fdfafb5717555526816af2ca4ac6c3e102f5907574048578e0c8fcc73"}'
)
"""ConfigMap of MindCluster, docs/en/scheduling/references/common_operations.md, "Fault Information", with
the checksum of the documentation."""


def of_plugin(text: str, node: str = "n1", **more: str) -> tuple[ReportedFault, ...]:
    found = ascend.read(f"mindx-dl-deviceinfo-{node}", {"DeviceInfoCfg": text, **more})
    assert found is not None
    return found.faults[node]


def test_the_documented_example_gives_both_chips_with_level_codes_and_time() -> None:
    network, chip = of_plugin(DOCUMENTED)

    assert network == ReportedFault(
        Part.CHIP,
        "Ascend910-0",
        "PreSeparateNPU",
        ("81078603",),
        datetime(2025, 4, 9, 3, 14, 28, 259000, tzinfo=UTC),
    )
    assert chip == ReportedFault(
        Part.CHIP, "Ascend910-4", "SeparateNPU", ("80E18402", "A8028801"), AT, is_listed=True
    )


def test_a_text_that_was_changed_or_cut_is_refused_by_its_checksum() -> None:
    with pytest.raises(ValueError, match=r"^data\.DeviceInfoCfg: CheckCode: expected the SHA-256"):
        of_plugin(DOCUMENTED.replace("Ascend910-4", "Ascend910-5"))
    with pytest.raises(ValueError, match=r"^data\.NodeInfo: CheckCode"):
        ascend.read("mindx-dl-nodeinfo-n1", {"NodeInfo": node_info(check_code="00")})


def test_an_old_plugin_names_levels_without_times_and_an_older_one_only_lists_chips() -> None:
    (old,) = of_plugin(device_info(fault("Ascend910-2", "RestartNPU", ["80E18005"])))
    older = '{"DeviceInfo":{"DeviceList":{"huawei.com/Ascend910-Unhealthy":"Ascend910-2"},"UpdateTime":1}}'
    (oldest,) = of_plugin(older)

    assert (old.level, old.codes, old.since) == ("RestartNPU", ("80E18005",), None)
    assert (oldest.level, oldest.device, oldest.is_listed) == ("Unhealthy", "Ascend910-2", True)


def test_newer_servers_call_their_chips_npu_and_virtual_ones_count_as_their_chip() -> None:
    newer = device_info(fault("npu-7", "SeparateNPU", at=AT), resource="huawei.com/npu", unhealthy=["npu-7"])
    virtual = device_info(
        fault("Ascend310P-4c.3cpu-100-0", "RestartNPU", at=AT),
        fault("Ascend310P-2c-101-0", "RestartNPU", ["80CF8000"], AT + timedelta(seconds=5)),
        resource="huawei.com/Ascend310P",
        unhealthy=["Ascend310P-0"],
    )

    assert [(one.device, one.is_listed) for one in of_plugin(newer)] == [("npu-7", True)]
    (one,) = of_plugin(virtual)
    assert (one.device, one.codes, one.is_listed) == ("Ascend310P-0", ("80CF8000", "80E18402"), True)
    assert one.since == AT + timedelta(seconds=5), "the latest of its codes"


def test_a_chip_that_is_being_reset_is_told_as_such() -> None:
    text = device_info(
        fault("Ascend910-1", "RestartNPU", at=AT), unhealthy=["Ascend910-1"], recovering=["Ascend910-1"]
    )

    assert [one.is_resetting for one in of_plugin(text)] == [True]


def test_chips_that_were_separated_for_too_many_faults_stand_in_a_key_of_their_own() -> None:
    text = device_info(
        fault("Ascend910-1", "ManuallySeparateNPU", ["80E01801"], AT), unhealthy=["Ascend910-1"]
    )

    known, only_listed = of_plugin(text, ManuallySeparateNPU="Ascend910-1,Ascend910-3")

    assert (known.level, known.since, known.is_listed) == ("ManuallySeparateNPU", AT, True)
    assert (only_listed.device, only_listed.since) == ("Ascend910-3", None)


def test_a_switch_tells_each_level_and_nothing_while_the_plugin_calls_its_node_healthy() -> None:
    code = "[0x00f103b0,155904,na,na]"
    sick = of_plugin(device_info(), SwitchInfoCfg=switch_info({code: "Separate"}, AT))
    calm = of_plugin(device_info(), SwitchInfoCfg=switch_info({code: "Separate"}, AT, status="Healthy"))

    assert sick == (ReportedFault(Part.SWITCH, "", "Separate", (code,), AT),)
    assert [one.is_resetting for one in calm] == [True]


def test_noded_tells_the_part_of_the_server() -> None:
    """Source: docs/en/scheduling/references/common_operations.md, "NodeD"."""
    text = node_info(("CPU", 1, "SeparateFault", ["00000011"]), ("PSU", 4, "NotHandleFault", ["0300000D"]))

    found = ascend.read("mindx-dl-nodeinfo-n1", {"NodeInfo": text})

    assert found == Reports(
        {
            "n1": (
                ReportedFault(Part.NODE, "CPU-1", "SeparateFault", ("00000011",)),
                ReportedFault(Part.NODE, "PSU-4", "NotHandleFault", ("0300000D",)),
            )
        }
    )


def test_of_a_configmap_about_many_nodes_one_bad_entry_hides_no_other() -> None:
    def entry(*faults: dict[str, Any]) -> Any:
        return msgspec.json.decode(device_info(*faults))["DeviceInfo"]

    public = fault("Ascend910-0", "SeparateNPU", ["220001001"], AT, kind="PublicFault")
    entries = {
        "mindx-dl-deviceinfo-n1": entry(fault("Ascend910-4", "SeparateNPU", at=AT)),
        "mindx-dl-deviceinfo-n2": {"DeviceList": {"huawei.com/Ascend910-Fault": "[{]"}},
        "mindx-dl-deviceinfo-n3": entry(public),
        "mindx-dl-nodeinfo-n4": {"FaultDevList": [], "NodeStatus": "Healthy"},
    }

    found = ascend.read(
        "cluster-info-device-0", {"cluster-info-device-0": msgspec.json.encode(entries).decode()}
    )

    assert found is not None
    assert {node: [one.level for one in faults] for node, faults in found.faults.items()} == {
        "n1": ["SeparateNPU"],
        "n3": ["SeparateNPU"],
    }
    assert found.faults["n3"][0].is_public
    assert list(found.unread) == ["n2"]
    assert found.unread["n2"].startswith("data.cluster-info-device-0, mindx-dl-deviceinfo-n2: DeviceList[")


@pytest.mark.parametrize("name", ["coredns", "mindx-dl-fault-config", "reset-config-job", "cluster-info", ""])
def test_other_configmaps_are_passed_over(name: str) -> None:
    assert ascend.read(name, {"DeviceInfoCfg": "{"}) is None


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({}, r"data\.DeviceInfoCfg: expected, and it is missing"),
        ({"DeviceInfoCfg": "{"}, r"data\.DeviceInfoCfg: "),
        ({"DeviceInfoCfg": '{"DeviceInfo":{}}'}, r"data\.DeviceInfoCfg: .*DeviceList"),
        ({"DeviceInfoCfg": "[" * 100_000}, r"data\.DeviceInfoCfg: "),
        (
            {"DeviceInfoCfg": device_info(fault("../../etc", "SeparateNPU"))},
            r"Fault\[0\]\.npu_name: '\.\./\.\./etc': expected a chip such as Ascend910-3",
        ),
        ({"DeviceInfoCfg": device_info(fault("Ascend910-0", "a b\n"))}, r"fault_level: .*expected a word"),
        ({"DeviceInfoCfg": device_info(fault("Ascend910-0", "X", ["8 0"]))}, "expected a fault code"),
        ({"DeviceInfoCfg": device_info(*[fault("Ascend910-0", "X")] * 257)}, "257 faults: expected 256"),
        (
            {"DeviceInfoCfg": device_info(), "ManuallySeparateNPU": "Ascend910"},
            r"data\.ManuallySeparateNPU: ",
        ),
        ({"DeviceInfoCfg": device_info(), "SwitchInfoCfg": '{"NodeStatus":3}'}, r"data\.SwitchInfoCfg: "),
    ],
)
def test_a_configmap_that_is_not_as_documented_is_refused_by_key_value_and_what_was_expected(
    data: Mapping[str, str], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        ascend.read("mindx-dl-deviceinfo-n1", data)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
NAMES = [
    "mindx-dl-deviceinfo-n1",
    "mindx-dl-nodeinfo-n1",
    "cluster-info-device-0",
    "cluster-info-switch-0",
    "cluster-info-node-cm",
]
KEYS = ["DeviceInfoCfg", "SwitchInfoCfg", "ManuallySeparateNPU", "NodeInfo", "cluster-info-device-0"]


@given(
    name=st.sampled_from(NAMES),
    data=st.dictionaries(
        st.sampled_from(KEYS),
        st.text(max_size=60) | anything.map(lambda one: msgspec.json.encode(one).decode()),
    ),
)
def test_whatever_stands_in_a_configmap_it_is_read_or_refused(name: str, data: dict[str, str]) -> None:
    try:
        found, why = ascend.read(name, data), ""
    except ValueError as error:
        found, why = None, str(error)

    assert isinstance(found, Reports) or why.startswith("data.")


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "fault_type": st.sampled_from(["CardUnhealthy", "PublicFault"]),
                "npu_name": st.sampled_from(["", "Ascend910-0", "npu-15", "Ascend910-2c-100-3"])
                | st.text(max_size=9),
                "fault_level": st.sampled_from(["SeparateNPU", "NormalNPU", ""]) | st.text(max_size=9),
                "fault_code": st.sampled_from(["", "80E18402", "80E18402,,A8028801"]) | st.text(max_size=9),
                "fault_time_and_level_map": st.dictionaries(
                    st.sampled_from(["80E18402", "A8028801"]),
                    st.fixed_dictionaries(
                        {"fault_time": st.integers(), "fault_level": st.just("SeparateNPU")}
                    ),
                ),
            },
        ),
        max_size=4,
    )
)
def test_each_fault_that_is_read_names_a_chip_and_a_level_in_bounds(rows: list[dict[str, Any]]) -> None:
    try:
        found = of_plugin(device_info(*rows))
    except ValueError:
        return
    for one in found:
        assert one.level.isalnum()
        assert len(one.device) <= 21
        assert one.since is None or 1970 <= one.since.year < 2200
    assert len({(one.device, one.level) for one in found}) == len(found)


@given(st.integers())
def test_any_number_is_a_time_or_none(number: int) -> None:
    at = told_time(number)

    assert at is None or at.tzinfo is UTC
