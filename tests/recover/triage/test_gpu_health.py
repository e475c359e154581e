"""Tests reports of NVML about a GPU under a gang, from the sample to the effect: the node is quarantined,
is only a suspect, or is only reported."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from detectors.folds.core import AgentCore
from detectors.folds.gpu_states import BusGpus
from detectors.rules import KernelRules
from detectors.rules.gpu_health import GpuHealth
from detectors.service.settings import AgentSettings
from detectors.sources.inventory import of_sample
from detectors.wire.contract import CoverageState, Source
from detectors.wire.gpu_sample import GpuSample, Sample
from recover.diagnose.what_counts import proven, suspected
from recover.model.modes import Mode
from tests.acting import recovering
from tests.builders import BOOT, NOW, Worlds, cluster, gang
from tests.detectors.folds.samples import LINKS, gpu, node, without

RULES, HEALTH = KernelRules(), GpuHealth()
WINDOW_S = 3600.0


def after(*looks: Sample) -> Worlds:
    """Returns a gang that trains while node n1's agent reads these samples of its GPUs, one every 30 s."""
    core = AgentCore(AgentSettings(), boot_id=BOOT, kernel_rules=RULES, gpu_health=HEALTH)
    for source in (Source.KMSG, Source.NVML, Source.LOGS):
        core.cover(source, CoverageState.COVERED, NOW - timedelta(hours=5))
    at = NOW - timedelta(seconds=30 * len(looks))
    for sample in looks:
        found = of_sample(sample)
        core.gpus(sample, found.devices, found.mig_devices, BusGpus(), at)
        at += timedelta(seconds=30)
    world = cluster(nodes=8, mode=Mode.RECOVER).running(gang())
    status = msgspec.structs.replace(core.status(NOW), pods=world.health["n1"].status.pods)
    world.health["n1"] = msgspec.structs.replace(world.health["n1"], status=status)
    return world


def broken(**answers: Any) -> list[Sample]:
    return [node(), *[node(gpu(1, **answers))] * 3]


@pytest.mark.parametrize(
    "looks",
    [
        [node(), *[node(GpuSample(index=1, refused="GPU_IS_LOST"))] * 3],
        broken(refused="RESET_REQUIRED"),
        broken(recovery_action=1),
        broken(recovery_action=2),
    ],
    ids=["lost", "reset required", "the driver asks for a reset", "for a reboot"],
)
def test_the_node_is_cordoned_and_the_gang_restarts(looks: list[Sample]) -> None:
    decision = after(*looks).decide()

    assert (decision.cordons, decision.restarts) == (["n1"], ["llm"])
    assert decision.incident.status.blamed_node == "n1"


@pytest.mark.parametrize(
    "answers", [{"rows_failed": True}, {"sram_exceeded": True}, {"recovery_action": 4}], ids=str
)
def test_the_node_is_cordoned_and_the_gang_goes_on(answers: dict[str, Any]) -> None:
    decision = after(*broken(**answers)).decide()

    assert (decision.cordons, decision.restarts) == (["n1"], [])


@pytest.mark.parametrize(
    "looks",
    [
        broken(rows_pending=True),
        broken(pages_pending=True),
        broken(uncorrected={"SRAM": 1}),
        broken(links=(*LINKS[:-1], False)),
        [node(), *[without(1)] * 3],
    ],
    ids=["remap pending", "page pending", "ECC", "link", "7 of 8"],
)
def test_the_node_is_suspected_and_nothing_is_stopped(looks: list[Sample]) -> None:
    world = after(*looks)

    assert sorted(suspected(world.world(), world.now, WINDOW_S)) == ["n1"]
    recovering(world)
    assert world.nodes["n1"].quarantine is None
    assert not world.recoveries


@pytest.mark.parametrize(
    "answers",
    [{"slowdowns": 0x88}, {"margin_c": 0}, {"pcie_width": 8}, {"replays": 999}, {"uncorrected_ever": 1}],
    ids=str,
)
def test_it_is_only_told(answers: dict[str, Any]) -> None:
    world = after(*broken(**answers))

    assert world.health["n1"].status.findings
    assert not suspected(world.world(), world.now, WINDOW_S)
    assert not proven(world.world(), world.now)
    assert not world.decide().incidents


def test_a_state_that_has_ended_frees_the_node() -> None:
    world = after(*broken(refused="RESET_REQUIRED"), node(), node())

    assert not proven(world.world(), world.now)
    assert not world.decide().cordons
