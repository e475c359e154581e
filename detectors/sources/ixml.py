"""Loads Iluvatar's library IXML for pynvml: libixml.so has NVML's names, layouts and numbers, and a few
additional functions.

Sources: Deep-Spark/go-ixml, pkg/ixml/api.h (a1a4e06); Deep-Spark/ix-container-toolkit, etc/config.yaml and
internal/modifier/sdk.go (4c8017a). Never run on Iluvatar's hardware.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["HEALTH", "Ixml", "IxmlError", "loaded"]

HEALTH = "ixmlDeviceGetHealth"

_FOLDERS = (Path("/usr/local/corex/lib64"), Path("/usr/local/corex/lib"), Path())
"""Folders of Iluvatar's SDK. The empty one means the search path of the loader."""
_NEEDED, _NAME = "libixthunk.so", "libixml.so"


class IxmlError(Exception):
    """The library exists and cannot be loaded. The message says why."""


class Ixml:
    """Replacement for `pynvml.nvmlLib`: pynvml looks up its functions here by NVML's names."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        """Raises `AttributeError` for a function that IXML does not have."""
        return getattr(self._library, name)

    def nvmlInitWithFlags(self, flags: int) -> int:  # noqa: N802  NVML's name
        """Calls IXML's version without flags, since IXML has only that."""
        return int(self._library.nvmlInit_v2())

    def health(self, device: Any) -> tuple[int, int]:
        """Returns NVML's error number, and the faults of the device as bits."""
        bits = ctypes.c_ulonglong()
        return int(getattr(self._library, HEALTH)(device, ctypes.byref(bits))), bits.value


def loaded(folders: Iterable[Path] = _FOLDERS) -> Ixml | None:
    """Returns the library, or None if no folder has it. A library for XML has the same file name, so its
    functions decide whether it is IXML. Raises `IxmlError`."""
    why = ""
    for folder in folders:
        try:
            if (folder / _NEEDED).exists():  # IXML's own list of libraries does not contain its place
                ctypes.CDLL(str(folder / _NEEDED), mode=ctypes.RTLD_GLOBAL)
            library = ctypes.CDLL(str(folder / _NAME))
        except OSError as error:
            is_absent = _NAME in str(error) and "No such file" in str(error)
            why = why or ("" if is_absent else str(error))
            continue
        if hasattr(library, "nvmlInit_v2") and hasattr(library, HEALTH):
            return Ixml(library)
    if why:
        raise IxmlError(why)
    return None
