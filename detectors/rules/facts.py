"""Defines the plain values that sources, rules and folds exchange: kernel lines, host facts, pods. Pure."""

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
    """Something that a source showed at some time. Its text is the evidence of a finding."""

    sequence: int
    """Number of the record in the kernel's log; 0 for a source without numbers."""
    at: datetime
    text: str
    source: Source = Source.KMSG
    since: datetime | None = None
    """Time at which the state began; None if only `at` is known."""


class KernelLine(Seen, frozen=True):
    """One record of the kernel's log, of facility kern."""


def addresses_of(devices: Iterable[Device]) -> frozenset[PciAddress]:
    """Returns the places of the devices. A device without a readable address is left out."""
    return frozenset(pci for device in devices if (pci := parse_pci(device.pci)) is not None)


class HostFacts(msgspec.Struct, frozen=True):
    """The facts that rules may know about the node."""

    boot_id: str = ""
    devices: tuple[Device, ...] = ()
    driver_version: str = ""
    """Version of the GPU driver; empty if it is not known."""
    addresses: frozenset[PciAddress] = frozenset()
    """All places on the bus that any source has shown, including the place of a GPU that was lost since, or
    that the driver never recognised. Empty if no source has shown any."""

    def subject(
        self, pci_text: str, *, kind: SubjectKind = SubjectKind.DEVICE, gpu_instance: int | None = None
    ) -> Subject | None:
        """Returns the subject at an address as the kernel wrote it; None if the node has nothing there. As
        long as no source has shown the node's devices, any address counts."""
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
    """The severity of a code that is found several times within some time."""

    times: Annotated[int, Meta(ge=2, le=100)]
    """Number of times that the code must come, each time a minute or more after the last."""
    within_s: Annotated[float, Meta(gt=0, le=86_400)]
    severity: Severity


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A fault as one line or sample shows it. folds/chain.py makes a finding from the draft, or adds the
    draft to a finding."""

    code: str
    fault: Fault
    origin: Origin
    severity: Severity
    subject: Subject
    remedy: Remedy = Remedy.NONE
    """The recommendation of the code's source."""
    final: bool = False
    """Whether no later line can make the finding less severe, so that decisions need not wait."""
    confined: bool = False
    """Whether the fault harms only the subject's GPU instance."""
    caused_by: str = ""
    """Code that the line itself names as its cause."""
    verdict: bool = False
    """Whether this is the vendor's own judgement of the device, which makes an existing finding graver."""
    clears: bool = False
    """Whether the vendor says that the device needs nothing any more."""
    repeated: Repeated | None = None
    place: str = ""
    """The part of the device where the fault showed, if the line names one that can be compared."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One state of one subject in one sample of the node: the subject is in that state, or is not.
    folds/states.py decides whether the state is a finding."""

    draft: Draft
    text: str = ""
    """The evidence; empty if the subject is not in that state."""
    samples: int = 1
    """Number of samples in succession in which the subject must be in that state before the state counts."""
    since: datetime | None = None
    """Time at which the state began; None if only the time of this sample is known."""
    is_event: bool = False
    """Whether the state is an event that does not last: each sample that shows it counts, and nothing ends
    it."""
    ended_by: str = ""
    """Text for people about what shows that the subject is no longer in that state."""


class PodRef(msgspec.Struct, frozen=True):
    """One container instance, as the path of its log file names it."""

    namespace: str
    name: str
    uid: str
    container: str = ""
    instance: int = 0
