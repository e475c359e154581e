"""Since when the present mode is in force: kept in ConfigMap `rekindle-state`, so a restart forgets nothing.

Promotion never acts on what was seen before it, and a restart of the controller is no promotion.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
import structlog

from detectors.kubeapi import ApiError
from recover.kube.cluster import CONFIGMAPS, Cluster
from recover.model import Mode
from recover.settings import Settings
from recover.telemetry import Clock

__all__ = ["STATE", "ModeKeeper"]

STATE = "rekindle-state"

log = structlog.get_logger(__name__)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


class ModeKeeper:
    def __init__(self, cluster: Cluster, settings: Settings, clock: Clock) -> None:
        self._cluster = cluster
        self._namespace = settings.namespace
        self._clock = clock
        self.mode = settings.mode
        self.since = clock.now()

    async def load(self) -> None:
        """Reads when the mode began, or writes that it begins now. Raises ApiError, ReplyLost,
        NotLeaderError."""
        kept = await self._read()
        if kept is not None and kept[0] is self.mode:
            self.since = kept[1]
            return
        self.since = self._clock.now()
        data = {"mode": str(self.mode), "since": self.since.isoformat()}
        log.info("mode begins", **data)
        if kept is None:
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": STATE, "namespace": self._namespace},
                "data": data,
            }
            try:
                await self._cluster.create(CONFIGMAPS, body, self._namespace)
                return
            except ApiError as error:
                if not error.exists:
                    raise
        await self._cluster.patch(CONFIGMAPS, STATE, {"data": data}, namespace=self._namespace)

    async def _read(self) -> tuple[Mode, datetime] | None:
        try:
            raw = await self._cluster.get(CONFIGMAPS, STATE, self._namespace)
        except ApiError as error:
            if error.not_found:
                return None
            raise
        data = msgspec.json.decode(raw, type=_ConfigMap).data
        try:
            since = datetime.fromisoformat(data["since"])
            return (Mode(data["mode"]), since) if since.tzinfo is not None else None
        except (KeyError, ValueError) as error:
            log.warning(
                "ConfigMap rekindle-state cannot be read; the mode begins now",
                namespace=self._namespace,
                data=data,
                error=str(error),
            )
            return None
