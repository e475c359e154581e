"""Reads further accelerator resources from ConfigMaps, in addition to those of the settings: once, before the
first object is decoded. A ConfigMap that cannot be read is logged, and the names of the settings apply.
"""

from __future__ import annotations

import asyncio

import msgspec
import structlog

from detectors.client.kubeapi import ApiError, ReplyLost
from recover.k8s.kinds import CONFIGMAPS
from recover.kube.cluster import Cluster, every
from recover.model.limitations import LABELS, device_resource
from recover.policy.settings import Settings
from recover.runtime.bounds import too_large

__all__ = ["with_resource_names"]

_NAMESPACE = "kube-public"
_TRIES, _BETWEEN_S = 3, 1.0
_NAMES_MAX = 64
"""Maximum number of names from ConfigMaps. Each pod's resources are compared with all of them."""

log = structlog.get_logger(__name__)


async def with_resource_names(
    cluster: Cluster, settings: Settings, between_s: float = _BETWEEN_S
) -> Settings:
    """Returns the settings, extended by the names from ConfigMaps."""
    if not settings.accelerator_maps:
        return settings
    found = dict.fromkeys(settings.accelerators)
    for raw in await _configmaps(cluster, between_s):
        try:
            if why := too_large(raw):
                raise ValueError(why)
            name = device_resource(raw)
        except (ValueError, RecursionError) as error:
            log.warning("accelerator resource skipped", namespace=_NAMESPACE, error=str(error))
            continue
        if name and len(found) < len(settings.accelerators) + _NAMES_MAX:
            found[name] = None
    new = [name for name in found if name not in settings.accelerators]
    if new:
        log.info("further accelerator resources", names=new)
    return msgspec.structs.replace(settings, accelerators=tuple(found))


async def _configmaps(cluster: Cluster, between_s: float) -> list[bytes]:
    """Returns the ConfigMaps, or an empty list if they cannot be read. An API server that does not answer is
    tried again a few times."""
    for left in reversed(range(_TRIES)):
        try:
            return await every(cluster, CONFIGMAPS, namespace=_NAMESPACE, labels=LABELS)
        except (ApiError, ReplyLost) as error:
            may_pass = isinstance(error, ReplyLost) or error.status >= 500 or error.status == 429
            if left and may_pass:
                await asyncio.sleep(between_s)
                continue
            log.warning(
                "ConfigMaps of accelerator resources cannot be read; those of the settings count",
                namespace=_NAMESPACE,
                error=str(error),
            )
            break
    return []
