"""`status` and `why` show reports of other vendors' device plugins, as far as the reader has permission to
see them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from detectors.client.kubeapi import ApiError
from detectors.wire.contract import Severity
from recover.kube.cluster import ListPage
from recover.model import Node
from recover.policy.settings import DeviceReports, LevelRow
from recover.snapshot.device_reports import with_reports
from tests.device_plugins import config_map, device_info, fault
from tests.recover.scripted import Scripted

NODES = [Node(name=name, uid=name, version="1") for name in ("n1", "n2")]
BROKEN = {"DeviceInfoCfg": device_info(fault("Ascend910-4", "SeparateNPU"))}
FORBIDDEN = ApiError(403, "Forbidden", "you may not list configmaps")


def page(*items: bytes, more: str = "") -> ListPage:
    return ListPage([msgspec.Raw(item) for item in items], "9", more)


def told(nodes: Iterable[Node]) -> dict[str, list[str]]:
    return {node.name: [one.place for one in node.signals] for node in nodes}


async def test_each_page_is_read_and_what_is_bad_or_forbidden_is_noted() -> None:
    bad = config_map("mindx-dl-deviceinfo-n2", {"DeviceInfoCfg": "{"})
    other = config_map("coredns", {"Corefile": "{"})
    first = page(other, bad, more="2")
    second = page(config_map("mindx-dl-deviceinfo-n1", BROKEN))
    notes: list[str] = []

    found = await with_reports(
        Scripted(list=[first, second, FORBIDDEN]), NODES, DeviceReports(ascend=True), notes
    )

    assert told(found) == {"n1": ["report-SeparateNPU-Ascend910-4"], "n2": []}
    one, two = notes
    assert one.startswith(
        "a report of a device plugin in kube-system left out: mindx-dl-deviceinfo-n2: data."
    )
    assert two.startswith("reports of device plugins in mindx-dl left out: ")


async def test_off_nothing_is_asked_and_a_wrong_row_of_the_settings_changes_nothing() -> None:
    silent = Scripted()
    assert await with_reports(silent, NODES, DeviceReports(), []) == NODES
    assert silent.calls == []

    wrong = DeviceReports(ascend=True, chip={"Nonsense": LevelRow(Severity.FATAL)})
    raw = config_map("mindx-dl-deviceinfo-n1", BROKEN)
    found = await with_reports(Scripted(list=[page(raw), page()]), NODES, wrong, [])
    assert told(found)["n1"]
