"""Names that are longer or odder than the API allows: such a name must not cost the node its whole status."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
import pytest

from detectors.folds.core import AgentCore
from detectors.folds.gpu_states import BusGpus
from detectors.folds.holders import Given, HeldDevices
from detectors.rules.facts import KernelLine, PodRef
from detectors.service.settings import AgentSettings
from detectors.sources import nvml_child
from detectors.sources.inventory import of_sample
from detectors.sources.pod_logs import parse_pod_folder
from detectors.wire.contract import DevicePod, NodeHealthStatus

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
UID = "0b5a4f2e-1111-4222-8333-444455556666"


def accepted(status: NodeHealthStatus) -> NodeHealthStatus:
    """Returns the status as the schema accepts it; raises if a limit is broken."""
    return msgspec.json.decode(msgspec.json.encode(status), type=NodeHealthStatus)


@pytest.mark.parametrize(
    "name",
    [
        f"{'n' * 64}_llm-0_{UID}",
        f"ml_{'p' * 200}_{'u' * 65}",
        f"m\nl_llm-0_{UID}",
        f"ml_Llm 0_{UID}",
        "ml__u",
    ],
    ids=["a long namespace", "a long uid", "a newline", "a blank", "no pod"],
)
def test_a_folder_that_no_kubelet_names_so_is_no_pods(name: str) -> None:
    assert parse_pod_folder(name) is None


def test_a_folder_of_a_kubelet_is_read() -> None:
    assert parse_pod_folder(f"ml_llm-0.a_{UID}") == ("ml", "llm-0.a", UID)
    assert parse_pod_folder(f"ml_static-n1_{'0f' * 16}") == ("ml", "static-n1", "0f" * 16)


class _NvmlError(Exception):
    def __init__(self, value: int) -> None:
        self.value = value


def test_whatever_the_driver_calls_itself_and_its_devices_the_status_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "x" * 300
    fake = SimpleNamespace(
        NVMLError=_NvmlError,
        nvmlInit=lambda: None,
        nvmlSystemGetDriverVersion=lambda: "595.45.04-" + long,
        nvmlDeviceGetCount=lambda: 80,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=f"00000000:{handle:02x}:00.0"),
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}-{long}",
        nvmlDeviceGetName=lambda handle: long,
        nvmlShutdown=lambda: None,
        NVML_ERROR_FUNCTION_NOT_FOUND=13,
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    sample = nvml_child.sampled_here()
    core = AgentCore(AgentSettings(), boot_id="b")

    found = of_sample(sample)
    core.gpus(sample, found.devices, found.mig_devices, BusGpus(), NOW)
    core.kernel_line(KernelLine(sequence=1, at=NOW, text="NVRM: Xid (PCI:0000:05:00): 79, x"))

    status = accepted(core.status(NOW))
    assert len(status.devices) == 64
    assert len(status.findings) == 1


def test_whatever_pods_and_lines_are_called_the_status_is_accepted() -> None:
    core = AgentCore(AgentSettings(), boot_id="b")
    core.kernel_line(
        KernelLine(sequence=1, at=NOW, text="NVRM: Xid (PCI:0000:05:00): 9999, \ud800 \x00" + "é" * 900)
    )
    rank = PodRef("ml", "llm-0", UID, "c" * 63)
    for text in (
        "step 1",
        "\x00 CUDA_ERROR_UNKNOWN " + "漢" * 600,
        "Traceback (most recent call last):",
        "E: \x1b",
    ):
        core.log_line(rank, text, NOW)
    core.pod_ended(rank, NOW)
    holder = DevicePod(uid=UID, namespace="ml", name="llm-0")
    core.pods_listed(
        [HeldDevices(holder, Given("ml", "llm-0", {"nvidia.com/gpu": ["GPU-1"]}))], frozenset({UID})
    )

    status = accepted(core.status(NOW))
    assert (len(status.findings), len(status.pods)) == (1, 1)
