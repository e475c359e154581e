"""Runs the node's own nvidia-smi, which fits its driver: the program is found below the node's root, and runs
in that root."""

from __future__ import annotations

from pathlib import Path

from detectors.validation.processes import run_within

__all__ = ["NvidiaSmi", "SmiError"]

_PLACES = (
    ("run/nvidia/driver", "usr/bin/nvidia-smi"),  # the driver container of the GPU Operator
    ("", "usr/bin/nvidia-smi"),
    ("", "usr/local/nvidia/bin/nvidia-smi"),
    ("", "opt/bin/nvidia-smi"),
)
_ASK_S = 60.0
_WORDS_CHARS_MAX = 600


class SmiError(Exception):
    """nvidia-smi is not available, or failed. The message contains its output."""


class NvidiaSmi:
    def __init__(self, host_root: Path, program: str = "") -> None:
        """Finds nvidia-smi. `program` is its path on the node, if it is in no usual place. Raises
        `SmiError`."""
        places = (("", program.lstrip("/")),) if program else _PLACES
        for root, path in places:
            if (host_root / root / path).is_file():
                self._command = ["chroot", str(host_root / root), f"/{path}"]
                return
        looked = ", ".join(str(host_root / root / path) for root, path in places)
        raise SmiError(f"the node has no nvidia-smi: looked for {looked}")

    def ask(self, device: str, field: str) -> str:
        """Returns one value of one device. Raises `SmiError`."""
        return self._run(["-i", device, f"--query-gpu={field}", "--format=csv,noheader"], _ASK_S)

    def persistence(self, device: str, *, on: bool) -> None:
        """Switches persistence mode on or off. Raises `SmiError`."""
        self._run(["-i", device, "-pm", "1" if on else "0"], _ASK_S)

    def reset(self, devices: list[str], deadline_s: float) -> str:
        """Resets the devices in one command, which GPUs connected by NVLink may require; all devices of the
        node if none is named. Returns the output. Raises `SmiError`."""
        return self._run(["--gpu-reset", *(["-i", ",".join(devices)] if devices else [])], deadline_s)

    def _run(self, arguments: list[str], deadline_s: float) -> str:
        try:
            end = run_within([*self._command, *arguments], deadline_s)
        except OSError as error:
            raise SmiError(f"{self._command[0]} cannot be started: {error.strerror or error}") from error
        words = " ".join((end.output + b" " + end.errors).decode("utf-8", "replace").split())
        told = f"nvidia-smi {' '.join(arguments)}"
        if end.status is None:
            raise SmiError(f"{told}: no answer within {deadline_s:g} s: {words[:_WORDS_CHARS_MAX]}")
        if end.status != 0:
            raise SmiError(f"{told} {end.how}: {words[:_WORDS_CHARS_MAX]}")
        return words
