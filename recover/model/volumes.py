"""Where pods see volumes: what says in which one the checkpoints lie."""

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
    CONFIG_MAP = "configMap"
    SECRET = "secret"
    PROJECTED = "projected"
    DOWNWARD_API = "downwardAPI"
    OTHER = "other"


class Mount(msgspec.Struct, frozen=True, order=True):
    """Where a container sees a volume, or one folder of it."""

    path: str
    sub_path: str = ""
    sub_path_expr: str = ""
    """The folder is named by the pod's own variables, so each pod may have another."""


class Volume(msgspec.Struct, frozen=True):
    name: str
    kind: VolumeKind
    source: Mapping[str, object] = {}
    """The volume's source as the template has it, to be mounted by the scan pod."""
    mounts: tuple[Mount, ...] = ()
