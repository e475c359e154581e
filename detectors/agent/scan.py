"""Implements `rekindle agent scan`: prints what the kernel log, NVML, the volumes of pods and the node itself
show on this node, or what a saved kernel log shows. The command answers once, and needs no cluster."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TextIO

import msgspec

from detectors.agent.scan_sources import SourceState, scan_sources
from detectors.commands.arguments import Parser
from detectors.commands.exit_status import Exit
from detectors.folds.gpu_states import GpuStates
from detectors.folds.report import Entry, entries
from detectors.rules import KernelRules, wants
from detectors.rules.catalogues import Catalogues
from detectors.rules.facts import Draft, HostFacts, KernelLine, Seen, addresses_of
from detectors.rules.gpu_health import GpuHealth
from detectors.service.settings import AgentSettings, SettingsError, load
from detectors.sources.inventory import addresses, bus_of, from_proc, of_sample
from detectors.sources.kmsg import kernel_line_of, records_now
from detectors.sources.nvml import NvmlError, sampled_once
from detectors.sources.saved_log import NO_YEAR, SINCE_BOOT, read_saved
from detectors.text.printing import printable
from detectors.wire.contract import CoverageState, Severity, Source
from detectors.wire.gpu_sample import Sample

__all__ = ["SourceState", "run"]

_EXITS = {
    Severity.INFO: Exit.GOOD,
    Severity.SUSPECT: Exit.SUSPECT,
    Severity.PENDING: Exit.DEGRADED,
    Severity.FATAL: Exit.BAD,
}
_ORDER = list(Severity)
_MARKS = ("NVRM: ", "nvidia-nvswitch", "mlx5_core ", "[Hardware Error]: ")
"""Beginnings of drivers' messages that nothing but a kernel log contains."""
_SHOWN_CHARS = 160
_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class _Report(msgspec.Struct, frozen=True):
    findings: list[Entry]
    sources: list[SourceState]
    catalogue_problems: list[str] = []


def run(args: list[str]) -> int:
    """Runs the command. The exit status shows the worst finding."""
    given = _parser().parse_args(args)
    replayed = given.replay[0] if given.replay else None
    try:
        if replayed == "" or len(given.replay) > 1:
            raise SettingsError(f"--replay {' '.join(given.replay)!r}: expected the name of one file")
        settings = load(given.settings, given.overrides, AgentSettings)
    except SettingsError as error:
        return _failed(Exit.UNUSABLE, str(error))
    try:
        report = _of_file(replayed, settings) if replayed else _of_node(given.host_root, settings)
    except OSError as error:
        why = f"{error.filename or replayed}: cannot be read: {error.strerror or error}"
        return _failed(Exit.UNUSABLE if replayed else Exit.NO_ANSWER, why)
    except _NoKernelLogError as error:
        return _failed(Exit.NO_ANSWER, f"{replayed}: {error}")
    if given.json:
        text = msgspec.json.format(msgspec.json.encode(report)).decode()
    else:
        meanings = Catalogues.load(settings.catalogue).meanings()
        text = "\n".join(_told(report, meanings, show_notes=given.all))
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _failed(Exit.NO_ANSWER, f"the report cannot be written: {error.strerror}")
    worst = max((entry.severity for entry in report.findings), key=_ORDER.index, default=Severity.INFO)
    return _EXITS[worst]


def _failed(status: Exit, why: str) -> int:
    print(f"rekindle agent scan: {why}", file=sys.stderr)
    return status


class _NoKernelLogError(Exception):
    """Nothing in the file looks like a kernel log, so the absence of findings proves nothing about the
    node."""


def _of_file(path: str, settings: AgentSettings) -> _Report:
    """Returns the report of a log from any machine. The devices of that node are not known, so all addresses
    count. Raises OSError, or _NoKernelLogError."""
    lines, count, is_known = [], 0, False
    unread, first_unread = 0, ""
    catalogues = Catalogues.load(settings.catalogue)
    rules = KernelRules(catalogues.user)
    with _opened(path) as file:
        for line, has_form in read_saved(file):
            count += 1
            is_wanted = wants(line.text)
            # A beginning such as `{` or `INFO: ` alone proves nothing: other logs and packed files have it,
            # too.
            is_known = is_known or has_form or (is_wanted and rules.read(line, HostFacts()) is not None)
            if is_wanted:
                lines.append(line)
            elif not has_form and any(mark in line.text for mark in _MARKS):
                unread, first_unread = unread + 1, first_unread or line.text
    if not is_known:
        raise _NoKernelLogError(
            f"none of its {count} lines looks like one of a kernel log: expected what dmesg, journalctl -k "
            "or /dev/kmsg have printed" + "".join(f"; a bad row: {one}" for one in catalogues.problems)
        )
    state = SourceState(Source.KMSG, CoverageState.COVERED, _not_read(unread, first_unread), records=count)
    return _report(lines, HostFacts(), settings, [state])


def _not_read(count: int, first: str) -> str:
    """Returns what people must know about lines with a driver's message behind a beginning that no known
    program prints; empty if there are none. `first` is the first of these lines."""
    if not count:
        return ""
    those = "one line was" if count == 1 else f"{count} lines were"
    return (
        f"{those} not read, because dmesg, journalctl and /dev/kmsg print no line with that beginning: "
        f"{first[:_SHOWN_CHARS]!a}"
    )


@contextlib.contextmanager
def _opened(path: str) -> Iterator[TextIO]:
    """Opens a file with any bytes as text. Raises OSError, or _NoKernelLogError for a file that must be
    unpacked first."""
    with open(0 if path == "-" else path, "rb", closefd=path != "-") as raw:
        begin = raw.peek(len(_GZIP))
        if begin.startswith(_GZIP):
            raise _NoKernelLogError(f"it is gzip: zcat {path} | rekindle agent scan --replay -")
        encoding = "utf-16" if begin.startswith(_UTF_16) else "utf-8-sig"
        with io.TextIOWrapper(raw, encoding=encoding, errors="replace") as file:
            yield file


def _of_node(root: Path, settings: AgentSettings) -> _Report:
    """Returns the report of this node. Raises OSError if the kernel log cannot be read."""
    sample, nvml = _sample(settings)
    found = of_sample(sample) if sample is not None else from_proc(root)
    host = HostFacts(
        devices=found.devices,
        driver_version=found.driver_version,
        addresses=addresses(root) | addresses_of(found.devices),
    )
    path = root / "dev/kmsg"
    try:
        records = list(records_now(path))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    boot = _boot(root)
    lines = [line for record in records if (line := kernel_line_of(record, lambda usec: boot + _usec(usec)))]
    state = SourceState(Source.KMSG, CoverageState.COVERED, records=len(records))
    shown = list(_by_nvml(sample, host, root, settings)) if sample is not None else []
    others = list(scan_sources(root, settings))
    shown += [one for other in others for one in other.shown]
    return _report(lines, host, settings, [state, nvml, *(other.state for other in others)], shown)


def _sample(settings: AgentSettings) -> tuple[Sample | None, SourceState]:
    if not settings.nvml.enabled:
        why = "switched off by the setting nvml.enabled"
        return None, SourceState(Source.NVML, CoverageState.BLIND, why)
    try:
        sample = asyncio.run(sampled_once(settings.nvml.deadline_s))
    except (NvmlError, OSError) as error:
        return None, SourceState(Source.NVML, CoverageState.BLIND, str(error))
    return sample, SourceState(Source.NVML, CoverageState.COVERED, devices=len(sample.gpus))


def _by_nvml(
    sample: Sample, host: HostFacts, root: Path, settings: AgentSettings
) -> Iterator[tuple[Seen, Draft]]:
    """Yields what one sample shows. The agent takes further samples before it believes some of it."""
    now = datetime.now(UTC)
    health = GpuHealth(Catalogues.load(settings.catalogue).user)
    bus = bus_of(sample, root)
    for one in GpuStates(health, settings.nvml.gpus_expected).observations(sample, host, bus, now):
        if one.text:
            yield Seen(sequence=0, at=now, text=one.text, source=Source.NVML), one.draft


def _boot(root: Path) -> datetime:
    """Returns the time at which the kernel's clock began, by the present time."""
    now = datetime.now(UTC)
    try:
        uptime_s = float((root / "proc/uptime").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return now
    return now - timedelta(seconds=uptime_s)


def _usec(usec: int) -> timedelta:
    return timedelta(microseconds=usec)


def _report(
    lines: Iterable[KernelLine],
    host: HostFacts,
    settings: AgentSettings,
    sources: list[SourceState],
    shown: Iterable[tuple[Seen, Draft]] = (),
) -> _Report:
    catalogues = Catalogues.load(settings.catalogue)
    rules = KernelRules(catalogues.user)
    return _Report(
        findings=entries([*_drafts(lines, rules, host), *shown], settings.chain),
        sources=sources,
        catalogue_problems=list(catalogues.problems),
    )


def _drafts(
    lines: Iterable[KernelLine], rules: KernelRules, host: HostFacts
) -> Iterator[tuple[KernelLine, Draft]]:
    for line in lines:
        draft = rules.read(line, host)
        if draft is not None:
            yield line, draft


def _told(report: _Report, meanings: Mapping[str, str], *, show_notes: bool) -> Iterator[str]:
    shown = [e for e in report.findings if show_notes or e.severity is not Severity.INFO]
    notes = len(report.findings) - len(shown)
    for entry in shown:
        subject = entry.subject
        pod = f"{subject.pod} {subject.volume}".rstrip()
        name = subject.uuid or subject.pci or pod
        where = f"{subject.kind} {printable(name)}" if name else f"{subject.kind}"
        times = f", {entry.count} times" if entry.count > 1 else ""
        after = f", after {entry.caused_by}" if entry.caused_by else ""
        what = f"{entry.code}  {where}  {entry.fault}"
        yield f"{entry.severity:<8} {what}{times}{after}"
        yield f"         {_when(entry.first_at)}  {printable(' '.join(entry.evidence.splitlines()))}"
        if entry.code in meanings:
            yield f"         meaning: {printable(meanings[entry.code])}"
        if entry.remedy != "none":
            yield f"         recommended action: {entry.remedy.replace('-', ' ')}"
    if not shown:
        yield "no finding above info"
    if notes:
        yield f"{notes} of severity info: --all shows them"
    for source in report.sources:
        yield f"{source.source}: {_read(source)}"
    for problem in report.catalogue_problems:
        yield f"catalogue row that is not used: {problem}"


def _read(source: SourceState) -> str:
    if source.state is CoverageState.BLIND:
        return f"not read: {source.why}"
    if source.source is Source.HOST:
        return f"read{f' ({source.why})' if source.why else ''}"
    counts = {"record": source.records, "device": source.devices, "volume": source.volumes}
    what, count = next(((what, count) for what, count in counts.items() if count is not None), ("", 0))
    return f"{count} {what}{'' if count == 1 else 's'}{f'; {source.why}' if source.why else ''}"


def _when(at: datetime) -> str:
    """Formats a time. A time of a saved log may count from the boot, have no year, or be unknown
    (sources/saved_log.py)."""
    if at == SINCE_BOOT:
        return "time unknown"
    if at.year == SINCE_BOOT.year:
        return f"{(at - SINCE_BOOT).total_seconds():.3f} s after the boot"
    return f"{at:%b %d %H:%M:%S}" if at.year == NO_YEAR else f"{at:%Y-%m-%d %H:%M:%S}"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "agent scan",
        "Print once what the kernel log, NVML, the volumes of pods and the node itself show on this node, or "
        "what a saved kernel log shows. The command needs no cluster, and writes nothing. The command "
        "reports a bad row of catalogue.extra and does not use the row; its exit status does not change.",
        example="rekindle agent scan --replay dmesg.txt --json",
    )
    parser.add_argument(
        "--replay",
        metavar="FILE",
        action="append",
        default=[],
        help="A saved kernel log instead (- for standard input): records of /dev/kmsg, the text of "
        "dmesg, or the journal, as text or JSON; the lines may have different forms.",
    )
    parser.add_argument(
        "--host-root",
        metavar="DIR",
        type=Path,
        default=Path("/"),
        help="The folder with the node's proc, sys and dev (default: /).",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    parser.add_argument(
        "--all", action="store_true", help="Also show findings of severity info; JSON always has them."
    )
    parser.add_argument(
        "--settings",
        metavar="FILE",
        type=Path,
        default=None,
        help="A TOML file with the agent's settings (docs/reference/settings.md).",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="GROUP.FIELD=VALUE",
        help="One setting, such as nvml.enabled=false; you can repeat this option.",
    )
    return parser
