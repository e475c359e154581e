"""The whole agent publishes which pods use a broken device, with the finding and never without one."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from detectors.service.settings import Nvml, PodResources
from detectors.wire.contract import CoverageState, NodeHealthStatus, Source
from tests.detectors.agent.host import SETTINGS, Host
from tests.detectors.client.node_api import NodeApi, node_api
from tests.detectors.sources.kubelet import Kubelet, answer, kubelet, pod
from tests.detectors.sources.nvml_standin import Gpus, pci_of, uuid_of

QUICK = msgspec.structs.replace(
    SETTINGS, pod_resources=PodResources(deadline_s=20, pause_s=0.05, retry_s=0.1)
)
BROKEN = "NVRM: Xid (PCI:0000:38:00): 79, pid=1, name=python3, GPU has fallen off the bus."
CONTAINED = "NVRM: Xid (PCI:0000:38:00 GPU-I:05): 94, pid=1, Contained: SM (0x1). RST: No, D-RST: No"
ITS_OWN_FAULT = "NVRM: Xid (PCI:0000:38:00): 31, pid=1, name=python3, MMU Fault"


@pytest.fixture
def host() -> Iterator[Host]:
    """Yields a host with two GPUs. Its root has a short name, because the path of a socket has 107 bytes at
    most."""
    root = Path(tempfile.mkdtemp(prefix="kubelet-"))
    found = Host(root)
    found.gpu("0000:39:00.0", "GPU-39")
    yield found
    shutil.rmtree(root)


def holders(status: NodeHealthStatus) -> dict[str, list[str]]:
    return {device.uuid: [pod.uid for pod in device.pods] for device in status.devices if device.pods}


async def covered(api: NodeApi) -> None:
    await api.until(
        lambda status: (Source.PODS, CoverageState.COVERED) in {(c.source, c.state) for c in status.coverage},
        timeout_s=30,
    )


async def asked(played: Kubelet, calls: int) -> None:
    async with asyncio.timeout(30):
        while played.calls < calls:
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)  # the answer is printed, read and processed


async def test_the_holders_of_all_devices_come_with_the_first_write_of_the_finding(host: Host) -> None:
    host.prints("loading", pod="llm-0")
    host.prints("loading", pod="other-0")
    with kubelet(host.root) as played:
        played.answer = answer(
            pod("llm-0", "GPU-38", namespace="train"), pod("other-0", "GPU-39", namespace="train")
        )
        async with node_api("n1") as api, host.agent(api, QUICK):
            await covered(api)
            assert holders(api.health) == {}
            host.kernel(BROKEN)
            first = await api.until(lambda status: bool(status.findings))

    assert holders(first) == {"GPU-38": ["uid-llm-0"], "GPU-39": ["uid-other-0"]}
    (holder,) = next(device for device in first.devices if device.uuid == "GPU-38").pods
    assert (holder.namespace, holder.name) == ("train", "llm-0")


async def test_a_contained_error_is_published_with_the_instances_that_pods_hold(host: Host) -> None:
    host.prints("loading", pod="llm-0")
    host.prints("loading", pod="other-0")
    with kubelet(host.root) as played:
        played.answer = answer(
            pod("llm-0", "MIG-GPU-38/5/0", namespace="train"), pod("other-0", "GPU-38", namespace="train")
        )
        async with node_api("n1") as api, host.agent(api, QUICK):
            await covered(api)
            host.kernel(CONTAINED)
            first = await api.until(lambda status: bool(status.findings))

    (finding,) = first.findings
    assert (finding.confined, finding.subject.gpu_instance) == (True, 5)
    assert holders(first) == {"GPU-38": ["uid-llm-0", "uid-other-0"]}
    (device,) = (device for device in first.devices if device.uuid == "GPU-38")
    assert device.instance_pods == ["5/uid-llm-0"]


async def test_pods_that_come_and_go_cause_no_write_while_no_device_is_broken(host: Host) -> None:
    with kubelet(host.root) as played:
        async with node_api("n1") as api, host.agent(api, QUICK):
            await covered(api)
            host.kernel(ITS_OWN_FAULT)
            await api.until(lambda status: bool(status.findings))
            calls = played.calls
            await asked(played, calls)
            writes = len(api.patches)
            for number in range(3):
                calls = played.calls
                host.prints("loading", pod=f"llm-{number}")
                played.answer = answer(pod(f"llm-{number}", "GPU-38", namespace="train"))
                await asked(played, calls + 1)

    assert len(api.patches) == writes


async def test_a_pod_that_comes_to_a_broken_node_is_told_and_an_ended_one_stays_told(host: Host) -> None:
    host.prints("loading", pod="llm-0")
    with kubelet(host.root) as played:
        played.answer = answer(pod("llm-0", "GPU-38", namespace="train"))
        async with node_api("n1") as api, host.agent(api, QUICK):
            await covered(api)
            host.kernel(BROKEN)
            await api.until(lambda status: holders(status) == {"GPU-38": ["uid-llm-0"]})
            shutil.rmtree(host.root / "var/log/pods/train_llm-0_uid-llm-0")
            played.answer = answer(pod("next-0", "GPU-39", namespace="train"))
            host.prints("loading", pod="next-0")
            status = await api.until(lambda status: "GPU-39" in holders(status), timeout_s=30)

    assert holders(status) == {"GPU-38": ["uid-llm-0"], "GPU-39": ["uid-next-0"]}


async def test_a_device_that_broke_before_the_agent_came_is_first_told_with_its_holders(host: Host) -> None:
    host.prints("loading", pod="llm-0")
    host.kernel(BROKEN)
    with kubelet(host.root) as played:
        played.answer = answer(pod("llm-0", "GPU-38", namespace="train"))
        async with node_api("n1") as api, host.agent(api, QUICK):
            first = await api.until(lambda status: bool(status.findings), timeout_s=30)

    assert holders(first) == {"GPU-38": ["uid-llm-0"]}


@pytest.mark.parametrize(
    ("hangs", "told"),
    [(False, {"GPU-0": ["uid-llm-0"], "GPU-1": ["uid-llm-1"]}), (True, {"GPU-1": ["uid-llm-1"]})],
)
async def test_a_pod_on_a_mig_device_is_first_told_once_nvml_has_answered_or_hangs(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, hangs: bool, told: dict[str, list[str]]
) -> None:
    monkeypatch.setattr("detectors.agent.wiring._NVML_WAIT_S", 1.0 if hangs else 30.0)
    gpus = Gpus(tmp_path, monkeypatch, count=2)
    gpus.answer(0, mig=1, mig_devices=1)
    gpus.node(hang="nvmlInit")
    shutil.rmtree(host.root / "proc/driver/nvidia")
    for number in range(2):
        host.gpu(f"{pci_of(number)}.0", uuid_of(number))
        host.prints("loading", pod=f"llm-{number}")
    host.kernel(BROKEN.replace("0000:38:00", pci_of(0)))
    with kubelet(host.root) as played:
        played.answer = answer(
            pod("llm-0", "MIG-1000", namespace="train"), pod("llm-1", "GPU-1", namespace="train")
        )
        settings = msgspec.structs.replace(QUICK, nvml=Nvml())
        async with node_api("n1") as api, host.agent(api, settings):
            await asked(played, 1)
            if not hangs:
                await asyncio.sleep(0.5)
                gpus.node(hang="")
            first = await api.until(lambda status: bool(status.findings), timeout_s=30)

    assert holders(first) == told


async def test_a_finding_makes_the_agent_ask_once_more(host: Host) -> None:
    host.prints("loading", pod="llm-0")
    with kubelet(host.root) as played:
        async with node_api("n1") as api, host.agent(api, QUICK):
            await asked(played, 2)  # at the start, and for the pod
            played.answer = answer(pod("llm-0", "GPU-38", namespace="train"))
            host.kernel(BROKEN)
            await api.until(lambda status: holders(status) == {"GPU-38": ["uid-llm-0"]}, timeout_s=30)


async def test_a_kubelet_that_falls_silent_takes_back_nothing_and_new_pods_stay_unknown(host: Host) -> None:
    host.prints("loading", pod="llm-0")
    with kubelet(host.root) as played:
        played.answer = answer(pod("llm-0", "GPU-39", namespace="train"))
        async with node_api("n1") as api, host.agent(api, QUICK):
            await covered(api)
            played.answer = b"\xff"
            host.prints("loading", pod="new-0")
            await api.until(
                lambda status: any(
                    c.source is Source.PODS and c.state is CoverageState.BLIND for c in status.coverage
                ),
                timeout_s=30,
            )
            host.kernel(BROKEN)
            status = await api.until(lambda status: bool(status.findings))

    assert holders(status) == {"GPU-39": ["uid-llm-0"]}
    (pods,) = [c for c in status.coverage if c.source is Source.PODS]
    assert "PodResources v1" in pods.why


async def test_an_agent_that_starts_anew_never_publishes_that_nobody_is_known(host: Host) -> None:
    host.prints("loading", pod="llm-0")
    with kubelet(host.root) as played:
        played.answer = answer(pod("llm-0", "GPU-38", namespace="train"))
        async with node_api("n1") as api:
            async with host.agent(api, QUICK):
                await covered(api)
                host.kernel(BROKEN)
                await api.until(lambda status: holders(status) == {"GPU-38": ["uid-llm-0"]})
            writes = len(api.patches)
            played.goes_on.clear()
            async with host.agent(api, QUICK):
                await asked(played, played.calls + 1)
                host.prints("step 1")
                await asyncio.sleep(0.02)
                host.prints("step 2")
                await api.until(lambda status: bool(status.pods))
                assert holders(api.health) == {"GPU-38": ["uid-llm-0"]}
                played.goes_on.set()
                await covered(api)

    assert len(api.patches) > writes
    for patch in api.patches[writes:]:
        named = [pod["uid"] for device in patch["status"]["devices"] for pod in device.get("pods", [])]
        assert named == ["uid-llm-0"]
