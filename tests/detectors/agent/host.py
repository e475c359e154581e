"""A folder that serves as `--host-root`, and the agent that runs on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from detectors.agent.wiring import AgentOptions, run
from detectors.client.credentials import Credentials
from detectors.service.settings import AgentSettings, Logs, Nvml, Publishing
from tests.detectors.client.node_api import NodeApi

__all__ = ["BOOT", "SETTINGS", "Host"]

BOOT = "0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0f1"
SETTINGS = AgentSettings(
    nvml=Nvml(enabled=False),
    logs=Logs(ended_poll_s=0.05),
    publishing=Publishing(missing_retry_s=0.05, retry_max_s=0.05, ask_busy_s=0.05),
)


class Host:
    """A folder that serves as `--host-root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sequence = 0
        for folder in ("dev", "proc/sys/kernel/random", "var/log/pods"):
            (root / folder).mkdir(parents=True)
        (root / "proc/sys/kernel/random/boot_id").write_text(BOOT + "\n")
        (root / "dev/kmsg").write_text("")
        self.gpu("0000:38:00.0", "GPU-38")

    def gpu(self, pci: str, uuid: str) -> None:
        folder = self.root / "proc/driver/nvidia/gpus" / pci
        folder.mkdir(parents=True)
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t {uuid}\nDevice Minor: \t 0\n"
        )

    def kernel(self, *texts: str, prio: int = 4) -> None:
        with (self.root / "dev/kmsg").open("a") as file:
            for text in texts:
                self.sequence += 1
                file.write(f"{prio},{self.sequence},{self.sequence},-;{text}\n")

    def prints(self, *texts: str, pod: str = "llm-0", instance: int = 0) -> None:
        folder = self.root / f"var/log/pods/train_{pod}_uid-{pod}/main"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{instance}.log").open("a") as file:
            for text in texts:
                file.write(f"{datetime.now(UTC).isoformat()} stdout F {text}\n")

    @asynccontextmanager
    async def agent(
        self, api: NodeApi, settings: AgentSettings = SETTINGS, *, listen_port: int = 0
    ) -> AsyncIterator[None]:
        stop = asyncio.Event()
        options = AgentOptions(
            node=api.node,
            credentials=Credentials(server=api.url),
            host_root=self.root,
            proc=self.root / "proc",
            listen_host="127.0.0.1",
            listen_port=listen_port,
            settings=settings,
        )
        task = asyncio.create_task(run(options, stop))
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait_for(task, 30)
