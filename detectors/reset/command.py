"""Implements `rekindle reset-devices`: resets the node's GPUs that a repair names, or says why it does not.

The command first waits for processes that still use the GPUs; if they do not end, it names them. Persistence
mode keeps the device open, so the command switches it off for the reset, and on again afterwards. A line in
the kernel log tells the validation when the reset was.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from detectors.commands.arguments import Parser
from detectors.reset.smi import NvidiaSmi, SmiError
from detectors.reset.users import users
from detectors.sources.inventory import from_proc
from detectors.validation.command import TERMINATION_LOG, leave
from detectors.validation.kernel_log import reset_line
from detectors.wire.contract import Device
from detectors.wire.step_report import Check, Outcome, ValidationReport

__all__ = ["run"]

_RESET_S = 300.0
_LOOK_S = 1.0
_NAMED_MAX = 5


class _RefusedError(Exception):
    """Nothing was reset. The message says why."""


def run(args: list[str]) -> int:
    """Runs the command. Returns the exit status."""
    given = _parser().parse_args(args)
    wanted = [name.strip() for name in given.devices.split(",") if name.strip()]
    bad = [name for name in wanted if not name.startswith("GPU-")]
    if bad or not 0 <= given.wait_s <= 3600:
        wrong = (
            f"--devices: {bad[0]!r}: expected the UUID of a GPU" if bad else "--wait-s: expected 0 to 3600"
        )
        print(f"rekindle reset-devices: {wrong}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    leave(_report(Outcome.FAILED, "the pod ended before the reset did"), given.termination_log)
    try:
        said = _reset(given, wanted)
    except (_RefusedError, SmiError, OSError) as error:
        return _tell(Outcome.FAILED, str(error), given.termination_log)
    return _tell(Outcome.PASSED, said, given.termination_log)


def _reset(given: argparse.Namespace, wanted: list[str]) -> str:
    """Resets the devices. Returns the output of nvidia-smi. Raises `_RefusedError`, `SmiError`, `OSError`."""
    smi = NvidiaSmi(given.host_root, given.nvidia_smi)
    shown = from_proc(given.host_root).devices
    if not shown:
        raise _RefusedError(f"{given.host_root / 'proc/driver/nvidia/gpus'} shows no GPU to reset")
    devices = [device for device in shown if device.uuid in wanted] if wanted else list(shown)
    for device in devices:
        with contextlib.suppress(SmiError):  # a GPU that reports nothing is the one to reset
            if smi.ask(device.uuid, "mig.mode.current") == "Enabled":
                raise _RefusedError(f"{device.uuid} is in MIG mode: a reset would delete its instances")
    with _persistence_off(smi, devices):
        _wait_for_users(given.host_root, devices, given.wait_s)
        said = smi.reset(wanted, _RESET_S)
    _note(given.host_root / "dev/kmsg", reset_line(given.devices, os.environ.get("REKINDLE_INCIDENT", "")))
    return said


@contextlib.contextmanager
def _persistence_off(smi: NvidiaSmi, devices: list[Device]) -> Iterator[None]:
    """Switches persistence mode off, and on again for the devices that had it on, however the reset ends."""
    had = []
    for device in devices:
        with contextlib.suppress(SmiError):
            if smi.ask(device.uuid, "persistence_mode") == "Enabled":
                smi.persistence(device.uuid, on=False)
                had.append(device.uuid)
    try:
        yield
    finally:
        for uuid in had:
            try:
                smi.persistence(uuid, on=True)
            except SmiError as error:
                print(f"rekindle reset-devices: {error}", file=sys.stderr)


def _wait_for_users(host_root: Path, devices: list[Device], wait_s: float) -> None:
    """Waits until no process uses the devices. Raises `_RefusedError`, which names the processes."""
    end_s = time.monotonic() + wait_s
    while using := users(host_root, devices):
        if time.monotonic() >= end_s:
            named = ", ".join(f"{user.program} (process {user.pid})" for user in using[:_NAMED_MAX])
            more = f" and {len(using) - _NAMED_MAX} more" if len(using) > _NAMED_MAX else ""
            files = ", ".join(sorted({user.device_file for user in using}))
            raise _RefusedError(f"still in use after {wait_s:g} s: {files} by {named}{more}")
        time.sleep(_LOOK_S)


def _note(log: Path, line: str) -> None:
    """Writes the line to the kernel log, if `log` is a device. If the write fails, the command only prints a
    message: without the line the validation reads the log of the whole boot, which is stricter."""
    try:
        if not stat.S_ISCHR(log.stat().st_mode):
            return
        with log.open("wb", buffering=0) as kernel:
            kernel.write(line.encode())
    except OSError as error:
        print(
            f"rekindle reset-devices: the command could not write the line {line!r} to {log}: "
            f"{error.strerror}. "
            "The check kernel-log of the validation therefore reads all lines of this boot",
            file=sys.stderr,
        )


def _report(outcome: Outcome, message: str) -> ValidationReport:
    return ValidationReport(checks=(Check("reset", outcome, message),))


def _tell(outcome: Outcome, message: str, termination_log: Path) -> int:
    report = _report(outcome, message)
    print(f"reset {outcome}: {message}", flush=True)
    leave(report, termination_log)
    return 1 if report.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "reset-devices",
        "Reset GPUs of this node that no process uses. The command needs root, the node's /proc "
        "and its root folder.",
    )
    parser.add_argument(
        "--devices",
        default=os.environ.get("REKINDLE_DEVICES", ""),
        metavar="UUID,...",
        help="The GPUs to reset; if empty, all GPUs of the node (default: $REKINDLE_DEVICES).",
    )
    parser.add_argument(
        "--host-root",
        metavar="DIR",
        type=Path,
        default=Path("/"),
        help="The folder that is the node's root (default: /).",
    )
    parser.add_argument(
        "--nvidia-smi",
        default="",
        metavar="PATH",
        help="The path of nvidia-smi on the node, if it is in no usual place.",
    )
    parser.add_argument(
        "--wait-s",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="How long to wait for processes that use a GPU (default: 60).",
    )
    parser.add_argument(
        "--termination-log",
        metavar="FILE",
        type=Path,
        default=TERMINATION_LOG,
        help="The file for the report, if the file exists (default: %(default)s).",
    )
    return parser
