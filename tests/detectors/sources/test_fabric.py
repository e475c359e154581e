"""Ports of RDMA adapters, as /sys shows them."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.rules.fabric_ports import Link, Port, PortSample, link
from detectors.service.settings import Fabric as Settings
from detectors.sources import fabric
from detectors.sources.fabric import Fabric, FabricReader
from tests.detectors.sources.rdma_tree import RdmaTree

PCI = "0000:0d:00.0"
IFF_UP = 0x1003


@pytest.fixture
def tree(tmp_path: Path) -> RdmaTree:
    return RdmaTree(tmp_path)


def read(tree: RdmaTree) -> tuple[Port, ...]:
    return FabricReader(tree.root).read().ports


def test_an_infiniband_port_is_read_with_its_counters(tree: RdmaTree) -> None:
    tree.port(
        tree.adapter("mlx5_0", PCI),
        link_downed=2,
        symbol_error=5,
        local_link_integrity_errors=1,
        phys_state=5,
    )

    (port,) = read(tree)

    assert (port.device, port.number, port.pci, port.model) == ("mlx5_0", 1, PCI, "MT_0000000838")
    assert (port.state, port.phys_state, port.link_layer) == (4, 5, "InfiniBand")
    assert (port.rate_gbps, port.downs, port.errors) == (400.0, 2, 6)
    assert link(port) is Link.ACTIVE


def test_an_efa_adapter_is_read_with_its_counters_of_broken_connections(tree: RdmaTree) -> None:
    port = tree.port(tree.adapter("efa_0", PCI), link_layer="Unknown", rate="100 Gb/sec (4X EDR)")
    (port / "hw_counters").mkdir()
    counts = {"impaired_remote_conn_events": 2, "unresponsive_remote_events": 5, "retrans_pkts": 70_000}
    for name, count in counts.items():
        (port / "hw_counters" / name).write_text(f"{count}\n")

    (found,) = read(tree)

    assert (found.device, found.errors, found.downs) == ("efa_0", 7, None)
    assert link(found) is Link.ACTIVE


def test_a_device_that_its_driver_has_registered_again_is_told_from_the_one_before(tree: RdmaTree) -> None:
    device = tree.adapter("mlx5_0", PCI)
    tree.port(device)
    (before,), (same,) = read(tree), read(tree)
    device.rename(device.with_name("unregistered"))
    shutil.copytree(device.with_name("unregistered"), device, symlinks=True)

    (after,) = read(tree)

    assert before == same
    assert after == msgspec.structs.replace(before, registration=after.registration)
    assert after.registration != before.registration


@pytest.mark.parametrize(
    ("flags", "carrier", "state", "expected"),
    [
        (IFF_UP, "1", 4, Link.ACTIVE),
        (IFF_UP, "0", 1, Link.DEAD),
        (0x1002, "", 1, Link.UNSEEN),
        (IFF_UP, "1", 1, Link.UNSEEN),
    ],
    ids=["up", "no carrier", "switched off", "the bond above it is down"],
)
def test_a_roce_port_is_judged_by_its_network_device(
    tree: RdmaTree, flags: int, carrier: str, state: int, expected: Link
) -> None:
    device = tree.adapter("mlx5_0", PCI)
    tree.port(device, state=state, phys_state=5 if state == 4 else 3, link_layer="Ethernet")
    tree.netdev(device, "eth2", flags=flags, carrier=carrier, carrier_down_count=7)

    (port,) = read(tree)

    assert link(port) is expected
    assert (port.downs, port.errors) == (7, None)


def test_a_roce_port_whose_network_device_is_in_a_pod_is_not_judged(tree: RdmaTree) -> None:
    tree.port(tree.adapter("mlx5_0", PCI), state=1, phys_state=3, link_layer="Ethernet")

    (port,) = read(tree)

    assert (port.is_up, link(port)) == (None, Link.UNSEEN)


def test_among_many_network_devices_the_one_of_the_port_is_found(tree: RdmaTree) -> None:
    device = tree.adapter("mlx4_0", PCI)
    for number in (1, 2):
        tree.port(device, number, link_layer="Ethernet")
        tree.netdev(
            device, f"eth{number}", flags=IFF_UP, carrier=1, carrier_down_count=number, dev_port=number - 1
        )
    for number in range(4):
        tree.netdev(device, f"eth2_{number}", flags=0, phys_port_name=f"pf0vf{number}", carrier_down_count=90)

    assert [port.downs for port in read(tree)] == [1, 2]


def test_virtual_functions_and_devices_without_a_place_on_the_bus_are_left_out(tree: RdmaTree) -> None:
    tree.port(tree.adapter("mlx5_0", PCI))
    tree.port(tree.adapter("mlx5_2", "0000:0d:00.2", of=PCI))
    soft = tree.root / "sys/devices/virtual/infiniband/rxe0"
    (soft / "ports/1").mkdir(parents=True)
    (tree.root / "sys/class/infiniband/rxe0").symlink_to("../../devices/virtual/infiniband/rxe0")

    assert [port.device for port in read(tree)] == ["mlx5_0"]


def test_a_port_of_efa_is_active_and_has_no_counters(tree: RdmaTree) -> None:
    device = tree.adapter("rdmap0s6", "0000:00:06.0", board_id="")
    tree.port(device, link_layer="Unspecified", rate="100 Gb/sec (4X EDR)")

    (port,) = read(tree)

    assert (link(port), port.downs, port.errors, port.model) == (Link.ACTIVE, None, None, "")


def test_a_port_that_cannot_be_read_hides_no_other(tree: RdmaTree) -> None:
    broken = tree.port(tree.adapter("mlx5_0", PCI))
    tree.port(tree.adapter("mlx5_1", "0000:0e:00.0"))
    for file in ("state", "phys_state", "rate"):
        (broken / file).unlink()
        (broken / file).mkdir()
    (tree.root / "sys/class/infiniband/mlx5_9").symlink_to("../../devices/gone")

    first, second = read(tree)

    assert (first.state, first.rate_gbps, link(first)) == (None, None, Link.UNSEEN)
    assert link(second) is Link.ACTIVE


def test_a_node_without_rdma_has_no_ports(tree: RdmaTree) -> None:
    sample = FabricReader(tree.root).read()

    assert (sample.ports, sample.gone) == ((), frozenset())
    assert sample.up_s > 0


def test_only_an_adapter_that_left_the_bus_is_gone(tree: RdmaTree) -> None:
    for number in range(3):
        tree.port(tree.adapter(f"mlx5_{number}", f"0000:0{number}:00.0"))
    reader = FabricReader(tree.root)
    assert reader.read().gone == frozenset()
    tree.remove("0000:01:00.0", "mlx5_1")
    tree.remove("0000:02:00.0", "mlx5_2", from_bus=True)

    sample = reader.read()

    assert (len(sample.ports), sample.gone) == (1, {"0000:02:00.0"})


def test_a_bus_that_cannot_be_listed_has_lost_nothing(tree: RdmaTree) -> None:
    tree.port(tree.adapter("mlx5_0", PCI))
    reader = FabricReader(tree.root)
    reader.read()
    tree.remove(PCI, "mlx5_0", from_bus=True)
    (tree.root / "sys/bus/pci/devices").rmdir()

    assert reader.read().gone == frozenset()


@given(text=st.binary(max_size=4096) | st.text(max_size=64).map(str.encode))
def test_whatever_a_file_holds_it_is_read_or_nothing(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    path = tmp_path_factory.mktemp("file") / "file"
    path.write_bytes(text)

    for parse in (fabric._leading, fabric._number, fabric._rate):
        value = parse(str(path))
        assert value is None or value >= 0


def test_a_sample_at_ten_ports_is_cheap(tree: RdmaTree) -> None:
    for number in range(10):
        device = tree.adapter(f"mlx5_{number}", f"0000:{number:02x}:00.0")
        tree.port(
            device, link_layer="Ethernet" if number % 2 else "InfiniBand", link_downed=0, symbol_error=0
        )
        tree.netdev(device, f"eth{number}", flags=IFF_UP, carrier=1, carrier_down_count=0)
    reader = FabricReader(tree.root)

    def cpu_s() -> float:
        before = time.process_time()
        reader.read()
        return time.process_time() - before

    assert min(cpu_s() for _ in range(50)) < 0.005, "about 1 ms where nothing else runs"


# --- the loop ---------------------------------------------------------------------------------------------


class Sink:
    def __init__(self) -> None:
        self.samples: list[PortSample] = []
        self.said: list[str] = []

    def sampled(self, sample: PortSample) -> None:
        self.samples.append(sample)

    def covered(self) -> None:
        self.said.append("")

    def blind(self, why: str) -> None:
        self.said.append(why)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.said) < count:
                await asyncio.sleep(0.01)


async def said(root: Path, settings: Settings, count: int) -> Sink:
    sink = Sink()
    task = asyncio.create_task(Fabric(root, sink, settings).run())
    try:
        await sink.until(count)
    finally:
        task.cancel()
        await asyncio.wait({task})
    return sink


async def test_a_node_without_rdma_is_covered(tree: RdmaTree) -> None:
    sink = await said(tree.root, Settings(every_s=0.02), 2)

    assert sink.said[:2] == ["", ""]
    assert sink.samples[0].ports == ()


async def test_a_root_without_classes_is_blind(tmp_path: Path) -> None:
    sink = await said(tmp_path, Settings(every_s=0.02), 2)

    assert "sys/class" in sink.said[0]
    assert sink.samples == []


async def test_switched_off_it_says_so(tree: RdmaTree) -> None:
    sink = await said(tree.root, Settings(enabled=False), 1)

    assert sink.said == ["switched off by the setting fabric.enabled"]


async def test_a_firmware_that_hangs_holds_up_nobody_and_is_told(tree: RdmaTree) -> None:
    port = tree.port(tree.adapter("mlx5_0", PCI))
    (port / "state").unlink()
    os.mkfifo(port / "state")
    sink = Sink()
    task = asyncio.create_task(Fabric(tree.root, sink, Settings(every_s=0.02, deadline_s=0.1)).run())
    try:
        await sink.until(1)
        await asyncio.sleep(0.3)
        assert len(sink.said) == 1, "one reader at a time"
        answer = os.open(port / "state", os.O_WRONLY)
        (port / "state").unlink()
        (port / "state").write_text("4: ACTIVE\n")
        os.close(answer)
        await sink.until(2)
    finally:
        task.cancel()
        await asyncio.wait({task})

    assert "0.1 s" in sink.said[0]
    assert sink.said[1] == ""
