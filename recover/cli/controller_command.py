"""`rekindle controller`: reads the arguments of the controller, and runs the controller from start to
signal."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import uuid
from pathlib import Path

import structlog

from detectors.client.kubeapi import KubeApi
from detectors.commands.arguments import Parser
from detectors.commands.exit_status import Exit
from detectors.service.settings import SettingsError, load
from recover.api.marks import CONTROLLER_NAME
from recover.kube.arguments import add_connection, connection
from recover.kube.clock import WallClock
from recover.kube.fenced import Fenced
from recover.kube.lease import Elector, LeaseLostError
from recover.kube.rest import RestCluster
from recover.policy.settings import Settings
from recover.runtime.controller import Controller
from recover.runtime.resource_names import with_resource_names
from recover.runtime.telemetry import Metrics, configure_logs
from recover.runtime.web import serve

__all__ = ["run"]

EXIT_LEASE_LOST = Exit.NO_ANSWER

log = structlog.get_logger(__name__)


def run(args: list[str]) -> int:
    """Runs the controller until a signal ends it, and returns the exit status. If another controller may
    lead, the process exits at once with EXIT_LEASE_LOST."""
    options = _parser().parse_args(args)
    configure_logs(options.log_level)
    try:
        settings = load(options.settings, options.set, Settings)
        asyncio.run(_main(options, settings))
    except SettingsError as error:
        print(f"rekindle controller: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "controller",
        "Name the culprit of a fault, quarantine the node, restart the whole gang from its newest "
        "complete checkpoint, and prove by new steps that the gang trains again. In mode observe "
        "(the default), only report these actions.",
        example="rekindle controller --kubeconfig FILE --set mode=observe",
    )
    parser.add_argument(
        "--settings",
        metavar="FILE",
        type=Path,
        help="A TOML file with settings (docs/reference/settings.md).",
    )
    parser.add_argument(
        "--set",
        metavar="[GROUP.]FIELD=VALUE",
        action="append",
        default=[],
        help="One setting, such as mode=recover or timing.settle_s=1; you can repeat this option.",
    )
    add_connection(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="0.0.0.0:9100",
        help="The address of /healthz, /readyz and /metrics; port 0 means any free port (default: "
        "%(default)s).",
    )
    parser.add_argument(
        "--identity",
        metavar="NAME",
        default="",
        help="The name of this controller in the Lease: the name of the pod (default: host name and a "
        "random suffix). A controller that ended and starts again under the same name leads at once, so two "
        "controllers must not have the same name at the same time.",
    )
    parser.add_argument(
        "--log-level",
        metavar="LEVEL",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="The log level: debug, info (default), warning or error.",
    )
    return parser


async def _main(options: argparse.Namespace, settings: Settings) -> None:
    if not settings.lease.is_in_order:
        lease = settings.lease
        raise SettingsError(
            f"settings lease: duration_s {lease.duration_s}, renew_deadline_s {lease.renew_deadline_s}, "
            f"retry_s {lease.retry_s}: expected duration_s > renew_deadline_s > retry_s"
        )
    host, _, port = options.listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"--listen {options.listen!r}: expected HOST:PORT, for example 0.0.0.0:9100")
    credentials = await connection(options)
    identity = options.identity or f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
    sender = f"{CONTROLLER_NAME}/{identity}"
    async with KubeApi(credentials, timeout_s=settings.lease.request_timeout_s, user_agent=sender) as own:
        elector = Elector(RestCluster(own), settings, identity, WallClock())
        async with KubeApi(credentials, user_agent=sender, may_send=elector.check) as api:
            fenced = Fenced(RestCluster(api), elector)
            settings = await with_resource_names(fenced, settings)
            controller = Controller(fenced, settings, Metrics(), WallClock(), elector.leading, elector.check)
            try:
                runner = await serve(controller, host or "0.0.0.0", int(port))
            except OSError as error:
                raise SettingsError(f"--listen {options.listen}: cannot listen there: {error}") from error
            log.info("controller starts", mode=settings.mode, server=credentials.server, identity=identity)
            try:
                await _work(controller, elector, fenced)
            finally:
                await runner.cleanup()
    log.info("controller ended")


async def _work(controller: Controller, elector: Elector, fenced: Fenced) -> None:
    """Runs until a signal comes. Then waits for the answers to the last writes, and releases the lease only
    after them."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    async with asyncio.TaskGroup() as group:
        electing = group.create_task(_elect(elector))
        working = group.create_task(_control(controller, elector))
        await stop.wait()
        await fenced.close()
        working.cancel()
        electing.cancel()
    await elector.release()


async def _control(controller: Controller, elector: Elector) -> None:
    await elector.holder_known.wait()
    await controller.run()


async def _elect(elector: Elector) -> None:
    """Runs the election. Once the lease is lost, nothing of this process may continue, not even its clean-up:
    the process exits, and the kubelet starts a new process, which stands by."""
    try:
        await elector.run()
    except LeaseLostError as error:
        log.error("the lease is lost, ending at once", why=str(error), exit_status=EXIT_LEASE_LOST)
        os._exit(EXIT_LEASE_LOST)
