"""Judges one sample of the GPUs by NVML, compared with earlier samples. The rows are in
detectors/catalog/gpu_health.toml; this module finds out which of them apply.

A sample may show that a row applies, that it does not apply, or neither: a value that a GPU does not support,
or cannot report while its MIG mode changes, is no data and ends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.catalog.tables import Table, UserRows
from detectors.catalog.xid import RecoveryActions
from detectors.rules.facts import Draft, Observation
from detectors.text.pci import PciAddress, parse_pci
from detectors.wire.contract import Fault, Origin, Remedy, Severity, Subject, SubjectKind
from detectors.wire.gpu_sample import GpuSample, Sample

__all__ = ["GPU_HEALTH", "GpuHealth", "HealthRow", "Past", "answered", "unanswered"]

_REPLAYS_PER_MINUTE_MAX = 8
_FABRIC_READY = 3
_HOT_C = 0
_POWER_BRAKE = 0x80
_SLOWDOWNS = {0x08: "hardware slowdown", 0x40: "thermal slowdown by hardware"}
_FABRIC_QUESTIONS = {0: "degraded bandwidth", 4: "an unhealthy route"}
"""Positions of two bits in the fabric's health; 1 means yes."""
_IXML_NAMED = 0x7F
_MISCONFIGURED = range(2, 9)
"""Values of the bits from 8 on that name the fault in the fabric's set-up."""


class Past(msgspec.Struct, frozen=True):
    """The state of one GPU in earlier samples of this boot."""

    last: GpuSample | None = None
    since_s: float = 0.0
    """Time in seconds since that sample."""
    links_up: frozenset[int] = frozenset()
    """NVLinks that have been up."""


def _flag(field: str, text: str) -> Check:
    def check(gpu: GpuSample, past: Past) -> str | None:
        value = getattr(gpu, field)
        return None if value is None else text if value else ""

    return check


def _new_errors(gpu: GpuSample, past: Past) -> str | None:
    """Checks the errors counted since the driver was loaded. Errors that the first sample shows are not new,
    and a counter that has become smaller was reset."""
    before = None if past.last is None else past.last.uncorrected
    if before is None or gpu.uncorrected is None:
        return None
    total = sum(gpu.uncorrected.values())
    if total <= sum(before.values()):
        return ""
    new = {place: count - before.get(place, 0) for place, count in gpu.uncorrected.items()}
    where = ", ".join(f"{count} in {place}" for place, count in new.items() if count > 0)
    return f"new uncorrectable ECC errors: {where}; since the driver was loaded: {total}"


def _links_down(gpu: GpuSample, past: Past) -> str | None:
    """Checks for links that were up and are down. With MIG on, nothing uses the links, and an A100 that was
    reset into that mode has them off."""
    if not gpu.links or gpu.is_mig:
        return None
    down = [str(link) for link, is_up in enumerate(gpu.links) if is_up is False and link in past.links_up]
    return f"NVLinks that were up and are down: {', '.join(down)}" if down else ""


def _link_errors(gpu: GpuSample, past: Past) -> str | None:
    new = _increase(gpu, past, "link_errors")
    return (
        f"NVLink replays and recoveries since the last sample: {new}" if new else None if new is None else ""
    )


def _replays(gpu: GpuSample, past: Past) -> str | None:
    new = _increase(gpu, past, "replays")
    if new is None or not past.since_s:
        return None
    a_minute = new * 60 / max(past.since_s, 60.0)
    return f"PCIe replays: {a_minute:.0f} a minute" if a_minute > _REPLAYS_PER_MINUTE_MAX else ""


def _increase(gpu: GpuSample, past: Past, field: str) -> int | None:
    now, before = getattr(gpu, field), getattr(past.last, field, None)
    return None if now is None or before is None else max(0, now - before)


def _fabric(gpu: GpuSample, past: Past) -> str | None:
    if gpu.fabric_state != _FABRIC_READY or gpu.fabric_health is None:
        return None
    wrong = [name for shift, name in _FABRIC_QUESTIONS.items() if gpu.fabric_health >> shift & 3 == 1]
    if (found := gpu.fabric_health >> 8 & 15) in _MISCONFIGURED:
        wrong.append(f"set-up fault {found}")
    if gpu.fabric_status:
        wrong.append(f"status {gpu.fabric_status}")
    return f"fabric: {', '.join(wrong)}" if wrong else ""


def _fabric_not_ready(gpu: GpuSample, past: Past) -> str | None:
    if gpu.fabric_state is None:
        return None
    return "" if gpu.fabric_state == _FABRIC_READY else f"fabric: state {gpu.fabric_state}, ready is 3"


def _slow(gpu: GpuSample, past: Past) -> str | None:
    if gpu.slowdowns is None:
        return None
    return ", ".join(name for bit, name in _SLOWDOWNS.items() if gpu.slowdowns & bit)


def _power_brake(gpu: GpuSample, past: Past) -> str | None:
    return None if gpu.slowdowns is None else "power brake" if gpu.slowdowns & _POWER_BRAKE else ""


def _hot(gpu: GpuSample, past: Past) -> str | None:
    if gpu.margin_c is None:
        return None
    return f"{-gpu.margin_c} degrees Celsius above the slowdown limit" if gpu.margin_c <= _HOT_C else ""


def _narrow(gpu: GpuSample, past: Past) -> str | None:
    if not gpu.pcie_width or not gpu.pcie_width_max:
        return None
    has_all = gpu.pcie_width >= gpu.pcie_width_max
    return "" if has_all else f"PCIe lanes: {gpu.pcie_width} of {gpu.pcie_width_max}"


def _ixml(bit: int, text: str) -> Check:
    """Returns the check for one bit of the verdict of Iluvatar's library."""

    def check(gpu: GpuSample, past: Past) -> str | None:
        return None if gpu.health_bits is None else f"IXML: {text}" if gpu.health_bits & bit else ""

    return check


def _ixml_other(gpu: GpuSample, past: Past) -> str | None:
    """Checks the bits without a name: a newer library may report faults that its published header does not
    name."""
    if gpu.health_bits is None:
        return None
    unnamed = gpu.health_bits & ~_IXML_NAMED
    return f"IXML: health {unnamed:#x}, which has no name" if unnamed else ""


def _ever(gpu: GpuSample, past: Past) -> str | None:
    count = gpu.uncorrected_ever
    return None if count is None else f"uncorrectable ECC errors in its life: {count}" if count else ""


Check = Callable[[GpuSample, Past], str | None]
"""A check of one GPU. It returns the evidence; empty if the row does not apply, None if the GPU does not
report the value that the check needs."""

_CHECKS: Mapping[str, Check] = {
    "nvml-row-remap-failed": _flag("rows_failed", "a row of memory could not be remapped"),
    "nvml-sram-threshold": _flag("sram_exceeded", "uncorrectable SRAM errors above the threshold"),
    "nvml-row-remap-pending": _flag("rows_pending", "a row of memory waits to be remapped"),
    "nvml-page-retirement-pending": _flag("pages_pending", "a page of memory waits to be retired"),
    "nvml-ecc-uncorrectable": _new_errors,
    "nvml-link-down": _links_down,
    "nvml-fabric-unhealthy": _fabric,
    "nvml-fabric-not-ready": _fabric_not_ready,
    "nvml-link-errors": _link_errors,
    "nvml-slowdown": _slow,
    "nvml-power-brake": _power_brake,
    "nvml-hot": _hot,
    "nvml-pcie-width": _narrow,
    "nvml-pcie-replays": _replays,
    "nvml-ecc-ever": _ever,
    "nvml-inforom": _flag("is_inforom_bad", "the InfoROM is damaged"),
    "ixml-system-hub": _ixml(0x01, "error of the system hub"),
    "ixml-memory-controller": _ixml(0x02, "error of the memory controller"),
    "ixml-over-temperature": _ixml(0x04, "too hot"),
    "ixml-over-voltage": _ixml(0x08, "voltage too high"),
    "ixml-ecc": _ixml(0x10, "ECC error"),
    "ixml-memory": _ixml(0x20, "error of the memory"),
    "ixml-pcie": _ixml(0x40, "error of PCIe"),
    "ixml-other": _ixml_other,
}
_EVENTS = frozenset({"nvml-ecc-uncorrectable", "nvml-link-errors", "nvml-pcie-replays"})
_ENDED_BY = "the GPU's driver no longer says so"
_LOST, _RESET, _REFUSED = "nvml-gpu-lost", "nvml-reset-required", "nvml-gpu-no-handle"
_FATES = {"GPU_IS_LOST": _LOST, "RESET_REQUIRED": _RESET}
_ACTION, _MISSING, _FEWER, _SILENT = (
    "nvml-recovery-action",
    "nvml-gpu-missing",
    "nvml-fewer-gpus",
    "nvml-silent",
)
_CODES = (*_CHECKS, _LOST, _RESET, _REFUSED, _ACTION, _MISSING, _FEWER, _SILENT)
_NODE = Subject(kind=SubjectKind.NODE)


class HealthRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    code: str
    meaning: str
    fault: Fault
    severity: Severity
    remedy: Remedy = Remedy.NONE
    samples: Annotated[int, Meta(ge=1, le=100)] = 1
    source: str

    def __post_init__(self) -> None:
        """Raises `ValueError` for a code that no check detects."""
        if self.code not in _CODES:
            raise ValueError(f"expected one of {', '.join(_CODES)}, not {self.code!r} - at `$.code`")


GPU_HEALTH = Table("gpu_health", HealthRow, "gpu_health.toml")


def answered(sample: Sample) -> frozenset[PciAddress]:
    """Returns the places of the GPUs that reported their address."""
    return frozenset(pci for gpu in sample.gpus if (pci := parse_pci(gpu.pci)) is not None)


def unanswered(sample: Sample, expected: frozenset[PciAddress]) -> dict[int, PciAddress]:
    """Returns the places of GPUs that NVML counts and that did not report their address, by their index in
    NVML's list, which is in the order of the bus. The result is empty if that does not identify them."""
    nameless = [gpu.index for gpu in sample.gpus if not gpu.pci]
    absent = sorted(expected - answered(sample), key=str)
    return dict(zip(nameless, absent, strict=True)) if len(nameless) == len(absent) else {}


class GpuHealth:
    """The rows by which a sample is judged."""

    def __init__(self, user: UserRows | None = None) -> None:
        """Raises `detectors.text.strict.BadValueError` for a bad row of the package's own file."""
        rows = (*GPU_HEALTH.packaged(), *(user or UserRows()).of(GPU_HEALTH))
        self._rows = {row.code: row for row in rows}  # a later row wins
        self._actions = RecoveryActions.packaged()

    def of_gpu(self, gpu: GpuSample, past: Past, subject: Subject) -> Iterator[Observation]:
        """Yields the states of a GPU that reported its address. Yields nothing while another MIG mode waits
        for a reset, since the GPU may report that it needs a reset for that reason alone."""
        if gpu.mig_changes:
            return
        yield self._observed(_REFUSED, subject, "")
        for name, code in _FATES.items():
            yield self._observed(code, subject, _refusal(gpu) if gpu.refused == name else "")
        if gpu.refused:
            return
        for code, check in _CHECKS.items():
            if (text := check(gpu, past)) is not None:
                yield self._observed(code, subject, f"{_name(gpu)}: {text}" if text else "")
        if gpu.recovery_action is not None:
            yield from self._verdicts(gpu, subject)

    def of_refusals(self, gpus: Iterable[GpuSample], subject: Subject) -> Iterator[Observation]:
        """Yields the states of GPUs that NVML counts and gives no handle for. A GPU that the agent may not
        see is not among them."""
        texts = {_FATES.get(gpu.refused, _REFUSED): _refusal(gpu) for gpu in gpus if gpu.refused}
        for code in (_LOST, _RESET, _REFUSED):
            yield self._observed(code, subject, texts.get(code, ""))

    def of_missing(self, subject: Subject, *, is_missing: bool) -> Observation:
        text = f"GPU at {subject.pci}: NVML does not show it" if is_missing else ""
        return self._observed(_MISSING, subject, text)

    def of_count(self, found: int, expected: int) -> Observation:
        text = f"GPUs: {found}, expected {expected}" if found < expected else ""
        return self._observed(_FEWER, _NODE, text)

    def of_silence(self, times: int, why: str) -> Observation:
        return self._observed(_SILENT, _NODE, f"{times} times in succession: {why}" if times else "")

    def _verdicts(self, gpu: GpuSample, subject: Subject) -> Iterator[Observation]:
        """Yields a state for each value of the recovery action. Each value has a separate code, so that a
        graver value that follows makes a new finding."""
        value = gpu.recovery_action or 0
        for number in sorted({*range(1, 8), value} - {0}):
            action = self._actions.of(number)
            is_so = number == value
            text = (
                f"{_name(gpu)}: the driver asks for recovery action {number}, {action.text}" if is_so else ""
            )
            judged = msgspec.structs.replace(
                self._rows[_ACTION], fault=action.fault, severity=action.severity, remedy=action.remedy
            )
            yield _observation(f"{_ACTION}-{number}", judged, subject, text)

    def _observed(self, code: str, subject: Subject, text: str) -> Observation:
        return _observation(code, self._rows[code], subject, text)


def _observation(code: str, row: HealthRow, subject: Subject, text: str) -> Observation:
    draft = Draft(
        code=code,
        fault=row.fault,
        origin=Origin.DRIVER,
        severity=row.severity,
        subject=subject,
        remedy=row.remedy,
        final=row.severity is Severity.FATAL,
    )
    return Observation(
        draft=draft, text=text, samples=row.samples, is_event=code in _EVENTS, ended_by=_ENDED_BY
    )


def _name(gpu: GpuSample) -> str:
    return f"GPU {gpu.index}"


def _refusal(gpu: GpuSample) -> str:
    return f"{_name(gpu)}: NVML answers {gpu.refused}"
