"""The child on a node with Iluvatar's library in place of NVIDIA's: the real pynvml, and a library made for
these tests from the vendor's published header. Nobody has tried this on Iluvatar's hardware."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from detectors.sources.ixml import IxmlError, loaded
from detectors.sources.nvml import NvmlError, sampled_once
from detectors.wire.gpu_sample import GpuSample
from tests.detectors.sources.nvml_standin import Gpus, pci_of, uuid_of

DEADLINE_S = 20.0


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    return Gpus(tmp_path, monkeypatch, is_iluvatar=True)


async def test_healthy_gpus_tell_who_they_are_and_that_nothing_is_wrong(gpus: Gpus) -> None:
    sample = await sampled_once(DEADLINE_S)

    assert (sample.error, len(sample.gpus), sample.is_by_ixml) == ("", 8, True)
    assert sample.gpus[2] == GpuSample(
        index=2,
        uuid=uuid_of(2),
        pci=f"{pci_of(2)}.0",
        model="Iluvatar BI-V150",
        minor=2,
        free_bytes=80 * 2**30,
        pcie_width=16,
        pcie_width_max=16,
        replays=0,
        is_inforom_bad=False,
        health_bits=0,
    )


async def test_the_verdict_of_the_library_comes_out(gpus: Gpus) -> None:
    gpus.answer(3, health=0x30)

    sample = await sampled_once(DEADLINE_S)

    assert [gpu.health_bits for gpu in sample.gpus] == [0, 0, 0, 0x30, 0, 0, 0, 0]


@pytest.mark.parametrize("answer", ["none", None], ids=["not supported", "the GPU is lost"])
async def test_a_verdict_that_cannot_be_had_is_no_data(gpus: Gpus, answer: str | None) -> None:
    gpus.answer(3, **({"error": 15} if answer is None else {"health": answer}))

    gpu = (await sampled_once(DEADLINE_S)).gpus[3]

    assert gpu.health_bits is None
    assert gpu.refused == ("GPU_IS_LOST" if answer is None else "")


async def test_the_devices_are_let_go_of_after_a_sample(gpus: Gpus) -> None:
    await sampled_once(DEADLINE_S)

    assert (gpus.times_begun, gpus.times_ended) == (1, 1)


async def test_a_call_that_hangs_is_named(gpus: Gpus) -> None:
    gpus.node(hang="ixmlDeviceGetHealth")

    with pytest.raises(NvmlError) as raised:
        await sampled_once(0.5)

    assert raised.value.is_silence
    assert "ixmlDeviceGetHealth of GPU 0" in str(raised.value)


async def test_an_error_names_the_library(gpus: Gpus) -> None:
    gpus.node(init_error=9)

    with pytest.raises(NvmlError, match=r"^IXML: "):
        await sampled_once(DEADLINE_S)


def test_a_library_for_xml_of_the_same_name_is_not_taken(tmp_path: Path) -> None:
    source = tmp_path / "xml.c"
    source.write_text("int ixmlParseBuffer(void) { return 0; }\n")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libixml.so"), str(source)], check=True, timeout=60
    )

    assert loaded([tmp_path]) is None


def test_a_library_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    """Otherwise the agent would report that there is no NVML, which nobody expects on such a node."""
    source = tmp_path / "ixml.c"
    source.write_text("int other(void);\nint nvmlInit_v2(void) { return other(); }\n")
    (tmp_path / "other.c").write_text("int other(void) { return 0; }\n")
    needed = tmp_path / "libother.so"
    made = [[str(needed), "other.c"], ["libixml.so", "ixml.c", str(needed)]]
    for words in made:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", *words], check=True, timeout=60, cwd=tmp_path)
    needed.unlink()

    with pytest.raises(IxmlError, match=r"libother\.so"):
        loaded([tmp_path / "nowhere", tmp_path])


async def test_a_library_that_the_loader_finds_and_cannot_load_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libixml.so").write_bytes(b"\x7fELF")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    with pytest.raises(NvmlError, match=r"^IXML: .*libixml\.so"):
        await sampled_once(DEADLINE_S)


def test_a_folder_without_the_library_has_none(tmp_path: Path) -> None:
    assert loaded([tmp_path]) is None
