"""Implements `rekindle agent`: reads its arguments, sets up logs and signals, runs the agent. The module uses
neither typer nor rich, so that the agent stays light."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import structlog

from detectors.agent import scan
from detectors.agent.wiring import AgentOptions
from detectors.agent.wiring import run as run_agent
from detectors.client.credentials import Credentials
from detectors.commands.arguments import Parser
from detectors.service.confinement import confine
from detectors.service.settings import AgentSettings, SettingsError, load
from detectors.text.strict import BadValueError

__all__ = ["run"]


def run(args: list[str]) -> int:
    """Runs the daemon until a signal ends it, or runs one scan. Returns the exit status."""
    if args[:1] == ["scan"]:
        return scan.run(args[1:])
    try:
        options = _options(_parser().parse_args(args))
    except (SettingsError, ValueError) as error:
        print(f"rekindle agent: {error}", file=sys.stderr)
        return 2
    _set_up_logs(options.node)
    if options.settings.confinement.enabled:
        _confine(options.host_root)
    try:
        asyncio.run(_until_told(options))
    except OSError as error:
        print(f"rekindle agent: {error}", file=sys.stderr)
        return 1
    except BadValueError as error:
        print(f"rekindle agent: the packaged catalogue is damaged: {error}", file=sys.stderr)
        return 1
    return 0


def _confine(host_root: Path) -> None:
    """Confines the agent. An agent that cannot be confined still works: a GPU that nobody watches is the
    greater harm."""
    log = structlog.get_logger("confinement")
    try:
        held = confine(host_root)
    except OSError as error:
        log.error(
            "the agent keeps some of the rights of its container that it does not need",
            why=error.strerror or str(error),
        )
        return
    log.info(
        "confined",
        capabilities=held.capabilities,
        devices=held.devices,
        landlock=held.landlock or "none here",
    )


async def _until_told(options: AgentOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run_agent(options, stop)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "agent",
        "Watch one node: its kernel log, its GPUs, the logs of its training pods. The agent runs "
        "until it is stopped, and writes only the NodeHealth of this node.\n\n`rekindle agent scan` "
        "reads the node once, and needs no cluster: rekindle agent scan --help.",
    )
    parser.add_argument(
        "--node",
        metavar="NAME",
        default=os.environ.get("NODE_NAME", ""),
        help="This node's name (default: $NODE_NAME).",
    )
    parser.add_argument(
        "--host-root",
        metavar="DIR",
        type=Path,
        default=Path("/"),
        help="The folder with the node's proc, sys, dev and var/log (default: /).",
    )
    parser.add_argument(
        "--server",
        metavar="URL",
        default="",
        help="An API server (default: the API server of the pod's cluster).",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        default="",
        help="A file with the token for --server; the agent reads the file again for each call.",
    )
    parser.add_argument(
        "--ca-file",
        metavar="FILE",
        default="",
        help="The certificate authority of --server (default: the system's).",
    )
    parser.add_argument(
        "--settings",
        metavar="FILE",
        type=Path,
        default=None,
        help="A TOML file with settings (docs/reference/settings.md).",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="GROUP.FIELD=VALUE",
        help="One setting, such as nvml.enabled=false; you can repeat this option.",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="0.0.0.0:9101",
        help="The address of /healthz, /readyz and /metrics (default: %(default)s).",
    )
    return parser


def _options(args: argparse.Namespace) -> AgentOptions:
    """Returns the options. Raises `SettingsError`, or `ValueError` for an argument that cannot be used."""
    if not args.node:
        raise ValueError("--node or $NODE_NAME must name this node")
    for flag, file in (("--token-file", args.token_file), ("--ca-file", args.ca_file)):
        if file and not Path(file).is_file():
            raise ValueError(f"{flag} {file}: no such file")
    host, colon, port = args.listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"--listen {args.listen}: expected host:port")
    return AgentOptions(
        node=args.node,
        credentials=_credentials(args),
        host_root=args.host_root,
        listen_host=host or "0.0.0.0",
        listen_port=int(port),
        settings=load(args.settings, args.overrides, AgentSettings),
    )


def _credentials(args: argparse.Namespace) -> Credentials:
    if args.server:
        if not args.server.startswith(("https://", "http://")):
            raise ValueError(f"--server {args.server!r}: expected a URL, for example https://10.0.0.1:6443")
        return Credentials(server=args.server.rstrip("/"), token_file=args.token_file, ca_file=args.ca_file)
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST", ""),
        os.environ.get("KUBERNETES_SERVICE_PORT", "443"),
    )
    if not host:
        raise ValueError("--server must name the API server, because the agent does not run in a pod")
    return Credentials.in_cluster(host, port)


def _set_up_logs(node: str) -> None:
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(node=node)
