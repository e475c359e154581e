"""Reads for commands which nodes have a live agent, from the pods of the chart's DaemonSet, and which rows
about signals of nodes the controller has in addition to the packaged rows. I/O only.

If agents are no pods, their reports show whether they live, and this module reads nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping

import msgspec

from detectors.client.kubeapi import ApiError, ReplyLost
from detectors.wire.contract import ObjectMeta
from recover.k8s.kinds import CONFIGMAPS, PODS
from recover.kube.cluster import Cluster, every
from recover.model import AgentPod, decode
from recover.model.agent_readiness import AGENT_LABELS, AgentPods, agent_pod
from recover.policy.settings import Settings, Signals

__all__ = ["agents_seen", "release_namespace", "signals_seen"]

_SETTINGS = "rekindle-settings"
_CONTROLLER = "controller.toml"
_SETTINGS_LABELS = "app.kubernetes.io/name=rekindle,app.kubernetes.io/component=settings"
"""Labels of the chart's ConfigMap with the settings."""


class _ConfigMap(msgspec.Struct):
    metadata: ObjectMeta
    data: dict[str, str] = {}


async def agents_seen(cluster: Cluster) -> Mapping[str, AgentPod] | None:
    """Returns the agent's pod of each node; a node without an agent is not in the mapping. Returns None if
    agents are no pods, or if they cannot be read."""
    try:
        release = await _release(cluster)
        if release is None or not _are_pods(release):
            return None
        labels = ",".join(f"{name}={value}" for name, value in AGENT_LABELS.items())
        raws = await every(cluster, PODS, namespace=release.metadata.namespace, labels=labels)
        found = AgentPods()
        for raw in raws:
            found.change(None, agent_pod(raw, decode.pod(raw, ())))
    except (ApiError, ReplyLost, msgspec.MsgspecError):
        return None
    return found.by_node


async def signals_seen(cluster: Cluster) -> Signals:
    """Returns people's own rows about signals. Returns no rows if the reader has no permission to see them,
    or if they cannot be read: the controller does not start with rows that cannot be read."""
    try:
        release = await _release(cluster)
        if release is None:
            return Signals()
        said = tomllib.loads(release.data.get(_CONTROLLER, ""))
        return msgspec.convert(said.get("signals", {}), Signals)
    except (ApiError, ReplyLost, msgspec.MsgspecError, tomllib.TOMLDecodeError):
        return Signals()


async def release_namespace(cluster: Cluster) -> str:
    """Returns the namespace of the release; empty if there is none, or if the reader has no permission to see
    it. Raises ReplyLost."""
    try:
        release = await _release(cluster)
    except (ApiError, msgspec.MsgspecError):
        return ""
    return release.metadata.namespace if release is not None else ""


async def _release(cluster: Cluster) -> _ConfigMap | None:
    """Returns the settings of the one release, in the usual namespace or any other; None if there is none, or
    more than one."""
    decoder = msgspec.json.Decoder(_ConfigMap)
    try:
        return decoder.decode(await cluster.get(CONFIGMAPS, _SETTINGS, namespace=Settings().namespace))
    except ApiError as error:
        if not error.not_found:
            raise
    raws = await every(cluster, CONFIGMAPS, labels=_SETTINGS_LABELS)
    found = [decoder.decode(raw) for raw in raws]
    return found[0] if len(found) == 1 else None


def _are_pods(release: _ConfigMap) -> bool:
    try:
        said = tomllib.loads(release.data.get(_CONTROLLER, ""))
    except tomllib.TOMLDecodeError:
        return False
    return said.get("agents_are_pods") is True
