"""Defines volumes and where pods mount them. That shows in which volume the checkpoints are."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

__all__ = ["Mount", "Volume", "VolumeKind"]


class VolumeKind(StrEnum):
    CLAIM = "persistentVolumeClaim"
    NFS = "nfs"
    CSI = "csi"
    HOST_PATH = "hostPath"
    EMPTY_DIR = "emptyDir"
    EPHEMERAL = "ephemeral"
    """A claim that Kubernetes creates for one pod, and deletes with the pod."""
    CONFIG_MAP = "configMap"
    SECRET = "secret"
    PROJECTED = "projected"
    DOWNWARD_API = "downwardAPI"
    OTHER = "other"


class Mount(msgspec.Struct, frozen=True, order=True):
    """The path at which a container mounts a volume, or one folder of it."""

    path: str
    sub_path: str = ""
    sub_path_expr: str = ""
    """Set if the folder's name contains the pod's own variables, so each pod may use a different folder."""


class Volume(msgspec.Struct, frozen=True):
    name: str
    kind: VolumeKind
    source: Mapping[str, object] = {}
    """The volume's source as the template has it, so that the scan pod can mount it."""
    mounts: tuple[Mount, ...] = ()
