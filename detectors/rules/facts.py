"""The plain values that sources hand to rules and the core: kernel lines, host facts, pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.text.pci import PciAddress, parse_pci
from detectors.wire.contract import Device, Fault, Origin, Remedy, Severity, Source, Subject, SubjectKind

__all__ = ["Draft", "HostFacts", "KernelLine", "Observation", "PodRef", "Repeated", "Seen", "addresses_of"]


class Seen(msgspec.Struct, frozen=True):
    """What a source showed at some time, in words that are the evidence of a finding."""

    sequence: int
    """Of the record in the kernel's log; 0 for a source that numbers nothing."""
    at: datetime
    text: str
    source: Source = Source.KMSG
    since: datetime | None = None
    """When it began; None where only `at` is known."""


class KernelLine(Seen, frozen=True):
    """One record of the kernel's log, of facility kern."""


def addresses_of(devices: Iterable[Device]) -> frozenset[PciAddress]:
    """Where they sit. What has no readable address is left out."""
    return frozenset(pci for device in devices if (pci := parse_pci(device.pci)) is not None)


class HostFacts(msgspec.Struct, frozen=True):
    """What rules may know about the node."""

    boot_id: str = ""
    devices: tuple[Device, ...] = ()
    driver_version: str = ""
    """Of the GPU driver; empty where it is not known."""
    addresses: frozenset[PciAddress] = frozenset()
    """All places on the bus that anybody has shown: also that of a GPU which was lost since, or which the
    driver never came to know. Empty where nobody has shown any."""

    def subject(
        self, pci_text: str, *, kind: SubjectKind = SubjectKind.DEVICE, gpu_instance: int | None = None
    ) -> Subject | None:
        """What sits at an address as the kernel wrote it. None where the node has nothing there; as long as
        nobody has shown what the node has, the address counts by itself."""
        pci = parse_pci(pci_text)
        if pci is None or (self.addresses and pci not in self.addresses):
            return None
        if kind is not SubjectKind.DEVICE:
            return Subject(kind=kind, pci=str(pci))
        for device in self.devices:
            if parse_pci(device.pci) == pci:
                return Subject(
                    kind=SubjectKind.DEVICE, device=device.uuid, pci=str(pci), gpu_instance=gpu_instance
                )
        return Subject(kind=SubjectKind.DEVICE, pci=str(pci), gpu_instance=gpu_instance)


class Repeated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The severity of a code that is found again, several times within some time."""

    times: Annotated[int, Meta(ge=2, le=100)]
    """How often it must come, each time a minute or more after the last."""
    within_s: Annotated[float, Meta(gt=0, le=86_400)]
    severity: Severity


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule read from one line. folds/chain.py makes a finding of it, or adds it to a finding."""

    code: str
    fault: Fault
    origin: Origin
    severity: Severity
    subject: Subject
    remedy: Remedy = Remedy.NONE
    """What the source of the code recommends."""
    final: bool = False
    """No later line can make the finding less severe, so that decisions need not wait."""
    confined: bool = False
    """It harms the subject's GPU instance alone."""
    caused_by: str = ""
    """Code that the line itself names as its cause."""
    verdict: bool = False
    """The vendor's own judgement of the device: raises what is known of it."""
    clears: bool = False
    """The vendor says that the device needs nothing any more."""
    repeated: Repeated | None = None
    place: str = ""
    """The part of the device where it showed, if the line names one that can be compared."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What one sample of the node shows of one state of one subject: the subject is in that state, or is not.
    folds/states.py decides whether the state is a finding."""

    draft: Draft
    text: str = ""
    """The evidence; empty where the subject is not in that state."""
    samples: int = 1
    """In how many samples in succession the subject must be in that state before the state counts."""
    since: datetime | None = None
    """When the state began; None where only the time of this sample is known."""
    is_event: bool = False
    """It happens at a time, and does not last: each sample that shows it counts, and nothing ends it."""
    ended_by: str = ""
    """For people: what shows that the subject is no longer in that state."""


class PodRef(msgspec.Struct, frozen=True):
    """One container instance, as its log file's path names it."""

    namespace: str
    name: str
    uid: str
    container: str = ""
    instance: int = 0
