"""The controller as a process beside a control plane: the controller of this working tree, or of another
version."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from chaos.processes.children import Child, spawn
from detectors.client.kubeapi import KubeApi
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import CONTROLLER_NAME, token

__all__ = ["PROGRAM", "SHIPPED_LEASE", "start_controller"]

PROGRAM = (sys.executable, "-m", "detectors.commands.main", "controller")
"""Command that starts the controller of this working tree."""
SHIPPED_LEASE = ("lease.duration_s=15", "lease.renew_deadline_s=10")
"""Settings for a stage whose controllers have the lease as shipped."""


async def start_controller(
    api: KubeApi,
    plane: ControlPlane,
    settings: Sequence[str],
    identity: str = CONTROLLER_NAME,
    *,
    program: Sequence[str] = PROGRAM,
    environment: Mapping[str, str] = {},
    settings_file: Path | None = None,
) -> Child:
    """Starts the controller with a token of its ServiceAccount, as its pod would get one. A controller with
    the identity of an ended one is like a restarted container of the same pod, and leads at once."""
    file = plane.folder / f"{identity}.token"
    file.write_text(await token(api, CONTROLLER_NAME), encoding="utf-8")
    command = [*program, "--listen", "127.0.0.1:0"]
    command += ["--server", plane.url, "--ca-file", str(plane.ca_file), "--token-file", str(file)]
    command += ["--identity", identity]
    if settings_file is not None:
        command += ["--settings", str(settings_file)]
    for setting in settings:
        command += ["--set", setting]
    return await spawn("controller", command, plane.folder / f"{identity}.log", environment)
