"""Reads the sources of `rekindle agent scan` other than the kernel log and NVML: one sample of the volumes of
pods, and one of the node itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from detectors.folds.host import HostFold
from detectors.folds.volumes import VolumeFold
from detectors.rules.boot_records import reason_of
from detectors.rules.catalogues import Catalogues
from detectors.rules.facts import Draft, Observation, Seen
from detectors.rules.host_state_rows import draft as host_draft
from detectors.rules.host_state_rows import host_state_rows
from detectors.rules.volume_rows import volume_rows
from detectors.rules.volume_states import VolumeSample
from detectors.service.settings import AgentSettings
from detectors.sources.host import HostReader
from detectors.sources.volumes import VolumeReader, VolumesError
from detectors.wire.contract import CoverageState, Source

__all__ = ["ScannedSource", "SourceState", "scan_sources"]


class SourceState(msgspec.Struct, frozen=True):
    """Whether a source was read. If it was not read, the report shows nothing from it."""

    source: Source
    state: CoverageState
    why: str = ""
    records: int | None = None
    devices: int | None = None
    volumes: int | None = None


class ScannedSource(msgspec.Struct, frozen=True):
    state: SourceState
    shown: tuple[tuple[Seen, Draft], ...] = ()


def scan_sources(root: Path, settings: AgentSettings) -> Iterator[ScannedSource]:
    yield _of_volumes(root, settings)
    yield _of_host(root, settings)


def _of_volumes(root: Path, settings: AgentSettings) -> ScannedSource:
    """Reads the volumes of all pods of the node: the scan does not know which pods have devices."""
    if not settings.volumes.enabled:
        return _not_read(Source.VOLUMES, "switched off by the setting volumes.enabled")
    try:
        pods = frozenset(os.listdir(root / "var/lib/kubelet/pods"))
        sample = asyncio.run(_volumes_once(root, settings, pods))
    except OSError as error:
        return _not_read(Source.VOLUMES, f"{error.filename}: {error.strerror}")
    except VolumesError as error:
        return _not_read(Source.VOLUMES, str(error))
    fold = VolumeFold(settings.volumes, volume_rows(Catalogues.load(settings.catalogue).user))
    state = SourceState(Source.VOLUMES, CoverageState.COVERED, volumes=len(sample.volumes))
    return ScannedSource(state, tuple(_shown(fold.observations(sample), Source.VOLUMES)))


def _of_host(root: Path, settings: AgentSettings) -> ScannedSource:
    """Reads the node itself. The last boot is reported only if its reason is recorded: the scan does not know
    whether there was an earlier boot."""
    if not settings.host.enabled:
        return _not_read(Source.HOST, "switched off by the setting host.enabled")
    reader = HostReader(root, boot_id="", proc=root / "proc")
    boot, unseen = reader.boot()
    reason = reason_of(boot, is_known=False)
    state = SourceState(
        Source.HOST,
        CoverageState.COVERED,
        f"crash records are missing: {', '.join(unseen)}" if unseen else "",
    )
    rows = host_state_rows(Catalogues.load(settings.catalogue).user)
    shown = list(_shown(iter(HostFold(settings.host, rows).observations(reader.sample())), Source.HOST))
    if reason is not None:
        seen = Seen(sequence=0, at=boot.at, text=reason.text, source=Source.HOST)
        shown.append((seen, host_draft(rows[reason.code])))
    return ScannedSource(state, tuple(shown))


async def _volumes_once(root: Path, settings: AgentSettings, pods: frozenset[str]) -> VolumeSample:
    reader = VolumeReader(root, settings.volumes)
    try:
        return await reader.sample(pods)
    finally:
        await reader.end()


def _shown(observations: Iterator[Observation], source: Source) -> Iterator[tuple[Seen, Draft]]:
    now = datetime.now(UTC)
    for one in observations:
        if one.text:
            yield Seen(sequence=0, at=one.since or now, text=one.text, source=source), one.draft


def _not_read(source: Source, why: str) -> ScannedSource:
    return ScannedSource(SourceState(source, CoverageState.BLIND, why))
