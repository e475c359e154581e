"""Tests the ConfigMap of Iluvatar's device plugin, as the plugin's code writes it; it was never seen on
hardware."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recover.model import iluvatar
from recover.model.device_reports import Reports
from tests.device_plugins import free_devices


def test_the_list_tells_how_many_healthy_devices_are_free_and_accuses_none() -> None:
    found = iluvatar.read("ix-device-info-cm-n1", free_devices(["GPU-a", "GPU-b"]))

    assert found == Reports({"n1": ()}, free={"n1": 2})


def test_a_node_whose_devices_are_all_in_use_lists_none() -> None:
    empty = {"DeviceListCfg": '{"DeviceList":null,"UpdateTime":1744182144}'}

    for data in (free_devices([]), empty):
        assert iluvatar.read("ix-device-info-cm-n1", data) == Reports({"n1": ()}, free={"n1": 0})


def test_other_configmaps_are_passed_over() -> None:
    assert iluvatar.read("ix-config", {}) is None


@given(st.text(max_size=80) | st.sampled_from(["", "{}", '{"DeviceList":3}', "[" * 10_000]))
def test_whatever_stands_there_it_is_read_or_refused(text: str) -> None:
    try:
        found, why = iluvatar.read("ix-device-info-cm-n1", {"DeviceListCfg": text}), ""
    except ValueError as error:
        found, why = None, str(error)

    assert found is not None or why.startswith("data.DeviceListCfg: ")


def test_more_devices_than_a_server_has_are_refused() -> None:
    with pytest.raises(ValueError, match="1025 devices: expected 1024 at most"):
        iluvatar.read("ix-device-info-cm-n1", free_devices(map(str, range(1025))))
