"""Connects two sources to the core: the volumes of pods, and the node itself. wiring.py connects the
others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from detectors.folds.core import AgentCore
from detectors.rules.boot_records import Boot
from detectors.rules.host_pressure import HostSample
from detectors.rules.volume_states import VolumeSample
from detectors.wire.contract import CoverageState, Source

__all__ = ["AgentForSinks", "HostEvents", "VolumeEvents"]


class AgentForSinks(Protocol):
    """The part of the agent that these sinks use."""

    @property
    def core(self) -> AgentCore: ...

    def cover(self, source: Source, state: CoverageState, why: str = "") -> None: ...

    def changed(self) -> None: ...


class VolumeEvents:
    """The sink of the volumes of pods."""

    def __init__(self, agent: AgentForSinks) -> None:
        self._agent = agent

    def pods(self) -> frozenset[str]:
        return self._agent.core.pods_with_devices

    def sampled(self, sample: VolumeSample) -> None:
        self._agent.core.volumes(sample, datetime.now(UTC))
        self._agent.changed()

    def covered(self) -> None:
        self._agent.cover(Source.VOLUMES, CoverageState.COVERED)

    def blind(self, why: str) -> None:
        self._agent.cover(Source.VOLUMES, CoverageState.BLIND, why)


class HostEvents:
    """The sink of the samples of the node itself."""

    def __init__(self, agent: AgentForSinks) -> None:
        self._agent = agent

    def booted(self, boot: Boot) -> None:
        self._agent.core.booted(boot, datetime.now(UTC))
        self._agent.changed()

    def sampled(self, sample: HostSample) -> None:
        self._agent.core.host(sample, datetime.now(UTC))
        self._agent.changed()

    def covered(self, why: str) -> None:
        self._agent.cover(Source.HOST, CoverageState.COVERED, why)

    def blind(self, why: str) -> None:
        self._agent.cover(Source.HOST, CoverageState.BLIND, why)
