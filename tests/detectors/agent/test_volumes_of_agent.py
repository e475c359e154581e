"""The whole agent on a node with volumes reads the kubelet's answer and a table of mounts, and publishes
findings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from detectors.agent.command import run
from detectors.commands.exit_status import Exit
from detectors.rules.volume_states import VolumeSample
from detectors.service.settings import Volumes
from detectors.sources.volumes import VolumeReader
from detectors.wire.contract import CoverageState, Family, NodeHealthStatus, Source
from tests.detectors.agent.host import SETTINGS, Host
from tests.detectors.client.node_api import node_api
from tests.detectors.sources.volume_tree import VolumeTree

SOON = msgspec.structs.replace(SETTINGS, volumes=Volumes(every_s=0.05, pause_s=0.01))
FULL, ROOMY = f"{2**40} 1024 0 0", f"{2**40} {2**39} 0 0"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def tree(host: Host, monkeypatch: pytest.MonkeyPatch) -> VolumeTree:
    """Yields the volumes of a host on which all pods of the folder count as users of devices."""
    tree, sample = VolumeTree(host.root, monkeypatch), VolumeReader.sample

    async def of_all(reader: VolumeReader, pods: frozenset[str]) -> VolumeSample:
        return await sample(reader, frozenset(path.name for path in tree.pods.iterdir()))

    begin = VolumeReader.__init__

    def with_table(reader: VolumeReader, host_root: Path, settings: Volumes) -> None:
        begin(reader, host_root, settings, mountinfo=tree.mountinfo)

    monkeypatch.setattr(VolumeReader, "sample", of_all)
    monkeypatch.setattr(VolumeReader, "__init__", with_table)
    return tree


def is_covered(status: NodeHealthStatus) -> bool:
    return any(
        (entry.source, entry.state, entry.families)
        == (Source.VOLUMES, CoverageState.COVERED, [Family.STORAGE])
        for entry in status.coverage
    )


async def test_a_volume_that_fills_up_is_published_and_so_is_its_room(host: Host, tree: VolumeTree) -> None:
    path = tree.mount("uid-0", "pvc-7", plugin="kubernetes.io~csi", below="mount")
    tree.answers(path, ROOMY)
    async with node_api("n1") as api, host.agent(api, SOON):
        await api.until(is_covered)
        await asyncio.sleep(0.3)
        before = len(api.patches)
        await asyncio.sleep(0.5)
        assert len(api.patches) == before, "its samples cost no write"
        tree.answers(path, FULL)
        full = await api.until(lambda status: bool(status.findings))
        tree.answers(path, ROOMY)
        await api.until(lambda status: status.findings[0].cleared_at is not None)

    (found,) = full.findings
    assert (found.code, found.subject.pod, found.subject.volume) == ("volume-full", "uid-0", "pvc-7")


def test_a_scan_shows_the_volumes_of_all_pods(
    host: Host, tree: VolumeTree, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.answers(tree.mount("uid-0", "data"), FULL)
    tree.answers(tree.mount("uid-1", "data"), ROOMY)

    status = run(["scan", "--host-root", str(host.root), "--all", "--set", "nvml.enabled=false"])

    told = capsys.readouterr().out
    assert status == Exit.GOOD
    assert "info     volume-full  pod uid-0 data  resources" in told
    assert "volume data (nfs4, nas:/ckpt) has 1.0 KiB of 1.0 TiB free" in told
    assert "volumes: 2 volumes" in told


def test_a_scan_says_that_it_sees_no_volumes(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    run(["scan", "--host-root", str(host.root), "--set", "nvml.enabled=false"])

    assert f"volumes: not read: {host.root}/var/lib/kubelet/pods: No such file" in capsys.readouterr().out
