"""Derives from samples of the GPUs by NVML what they show, compared with earlier samples. Pure.

states.py makes findings from the observations. The number of GPUs and rows bounds the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from detectors.folds.chain import Chain
from detectors.folds.states import Folded, States
from detectors.rules.facts import HostFacts, Observation, addresses_of
from detectors.rules.gpu_health import GpuHealth, Past, answered, unanswered
from detectors.text.pci import PciAddress, parse_pci
from detectors.wire.contract import Source, Subject, SubjectKind
from detectors.wire.gpu_sample import GpuSample, Sample

__all__ = ["BusGpus", "GpuStates", "expected_gpus"]

_SAMPLES_TO_END = 2
_CODE_PREFIXES = ("nvml-", "ixml-")


class BusGpus(msgspec.Struct, frozen=True):
    """NVIDIA GPUs as the kernel's PCI bus shows them."""

    ours: frozenset[PciAddress] = frozenset()
    """GPUs bound to NVIDIA's driver or to none. NVML should show them."""
    others: frozenset[PciAddress] = frozenset()
    """GPUs bound to another driver, for example GPUs that were given to a virtual machine."""


def expected_gpus(host: HostFacts, bus: BusGpus) -> frozenset[PciAddress]:
    """Returns the places of the GPUs that NVML should show: the GPUs that the bus or an earlier sample of
    this boot has shown."""
    return (addresses_of(host.devices) | bus.ours) - bus.others


class GpuStates:
    def __init__(self, health: GpuHealth, gpus_expected: int) -> None:
        self._health = health
        self._gpus_expected = gpus_expected
        self._gpus_before = 0
        # The kernel log reports the same faults, and ends the faults that it has reported.
        self._states = States(Source.NVML, _CODE_PREFIXES, samples_to_end=_SAMPLES_TO_END, unless_known=True)
        self._last: dict[PciAddress, tuple[datetime, GpuSample]] = {}
        self._links_up: dict[PciAddress, frozenset[int]] = {}
        self._driver_version = ""

    def last_boot(self, gpus: int) -> None:
        """Takes the number of GPUs that the node had in the last boot."""
        self._gpus_before = gpus

    def begin_anew(self) -> None:
        """Forgets counters and links, because the devices were reset or the driver was loaded again."""
        self._states.clear()
        self._last.clear()
        self._links_up.clear()

    def silent(self, chain: Chain, times: int, why: str, at: datetime) -> Folded:
        return self._states.fold(chain, [self._health.of_silence(times, why)], at)

    def fold(self, chain: Chain, sample: Sample, host: HostFacts, bus: BusGpus, at: datetime) -> Folded:
        """Begins and ends findings from one sample. `host` has the devices of this sample."""
        if sample.driver_version != self._driver_version:
            self.begin_anew()
            self._driver_version = sample.driver_version
        failed = frozenset(pci for pci in map(parse_pci, chain.failed_devices) if pci is not None)
        folded = self._states.fold(chain, self.observations(sample, host, bus, at, failed=failed), at)
        for gpu in sample.gpus:
            pci = parse_pci(gpu.pci)
            if pci is not None and not gpu.refused:
                up = frozenset(link for link, is_up in enumerate(gpu.links) if is_up)
                self._last[pci] = at, _with_count(gpu, self._past(pci, at).last)
                before = frozenset() if gpu.is_mig else self._links_up.get(pci, frozenset())
                self._links_up[pci] = before | up
        return folded

    def observations(
        self,
        sample: Sample,
        host: HostFacts,
        bus: BusGpus,
        at: datetime,
        *,
        failed: frozenset[PciAddress] = frozenset(),
    ) -> Iterator[Observation]:
        """Yields what this sample shows, compared with earlier samples. `failed` are the places of GPUs with
        an open fatal finding."""
        expected = expected_gpus(host, bus)
        refusing = unanswered(sample, expected)
        yield self._health.of_silence(0, "")
        for gpu in sample.gpus:
            pci = parse_pci(gpu.pci) or refusing.get(gpu.index)
            subject = host.subject(str(pci)) if pci is not None else None
            if gpu.pci and subject is not None:
                yield from self._health.of_gpu(gpu, self._past(pci, at), subject)
            elif subject is not None:
                yield from self._health.of_refusals([gpu], subject)
        nameless = [gpu for gpu in sample.gpus if not gpu.pci and gpu.index not in refusing]
        if _are_known(len(nameless), expected - answered(sample), failed - answered(sample)):
            nameless = []
        yield from self._health.of_refusals(nameless, Subject(kind=SubjectKind.NODE))
        yield from self._missing(sample, expected, host, bus)

    def _missing(
        self, sample: Sample, expected: frozenset[PciAddress], host: HostFacts, bus: BusGpus
    ) -> Iterator[Observation]:
        """Yields what is missing. If some GPUs do not report their address, they may be the missing ones, so
        no single GPU is judged as missing. A GPU that has another driver counts as one of the node's GPUs:
        somebody gave it to a virtual machine."""
        there = answered(sample)
        if all(gpu.pci for gpu in sample.gpus):
            for pci in sorted(expected, key=str):
                subject = host.subject(str(pci))
                if subject is not None:
                    yield self._health.of_missing(subject, is_missing=pci not in there)
        count = max(len(expected | there), len(sample.gpus)) + len(bus.others - there)
        if wanted := max(self._gpus_expected, self._gpus_before):
            yield self._health.of_count(count, wanted)

    def _past(self, pci: PciAddress | None, at: datetime) -> Past:
        if pci is None or pci not in self._last:
            return Past()
        then, gpu = self._last[pci]
        return Past(
            last=gpu,
            since_s=max(0.0, (at - then).total_seconds()),
            links_up=self._links_up.get(pci, frozenset()),
        )


def _are_known(nameless: int, absent: frozenset[PciAddress], failed: frozenset[PciAddress]) -> bool:
    """Whether the GPUs that do not report their address can only be GPUs that have failed already: then they
    are no fault of the node as a whole."""
    return nameless <= len(failed) and absent <= failed


def _with_count(gpu: GpuSample, before: GpuSample | None) -> GpuSample:
    """Returns the GPU with the last known count of errors if this sample has no count: the next count is
    compared with it."""
    if gpu.uncorrected is not None or before is None:
        return gpu
    return msgspec.structs.replace(gpu, uncorrected=before.uncorrected)
