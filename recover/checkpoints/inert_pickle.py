"""Reads a pickle as plain data, for the readers of PyTorch's formats and of PaddleNLP's: nothing that the
pickle names is imported or called.

Every class becomes an `Inert` stand-in that keeps its state and does nothing. A pickle that names a function
or class of the standard library that no checkpoint needs (os.system, builtins.eval) is refused at once.

A hostile file can then only waste memory and time. The memory is limited here while the file is loaded.
child_process.py limits the time, since nothing within the process can: the file chooses its keys, and thereby
how long their hashes take. So a pickle of a tenant is only loaded in a separate process, and the results
leave that process as plain data.
"""

from __future__ import annotations

import gc
import io
import pickle
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, ClassVar

__all__ = [
    "MEMORY_BYTES_MIN",
    "Inert",
    "Scalar",
    "is_scalar",
    "limit_memory",
    "load_inert",
    "load_next_inert",
    "memory_for",
    "named_shortly",
    "scalars",
]

Scalar = bool | int | float | str | None
"""A plain value: numbers of at most 64 bits, and texts of at most TEXT_CHARS_MAX characters."""

TEXT_CHARS_MAX = 256

MEMORY_BYTES_MIN = 256 * 2**20
MEMORY_PER_BYTE = 32
"""Memory for each byte of a pickle. Measured: the objects of a DCP index of 300,000 pieces take 13 times the
bytes of their pickle."""

_HARMLESS_MODULES = frozenset(
    {"_codecs", "argparse", "collections", "copyreg", "datetime", "decimal", "enum", "fractions"}
    | {"functools", "pathlib", "types", "typing", "uuid"}
    | {"dataclasses", "itertools", "logging", "operator", "random", "re", "signal", "zoneinfo"}
)
"""Modules whose names may occur. torch.save writes bytes by _codecs.encode; an argparse.Namespace has
Megatron's arguments, among them `exit_signal`, which is signal.SIGTERM; a trainer's hyperparameters may have
a compiled pattern, and the state of its data a random.Random."""
_HARMLESS_BUILTINS = frozenset(
    {
        "bool",
        "bytearray",
        "bytes",
        "complex",
        "dict",
        "float",
        "frozenset",
        "getattr",
        "int",
        "list",
        "object",
    }
    | {"range", "set", "slice", "str", "tuple"}
)

_UNREADABLE = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Errors that pickle.load raises for damaged input; its documentation has no complete list."""


class Inert:
    """Replaces an object of any class. `state` contains what the pickle would have set as the object's
    attributes."""

    of: ClassVar[str] = ""
    """Name of the class that it replaces, such as `torch.FloatStorage`."""

    state: dict[str, Any]

    def __new__(cls, *args: object, **kwargs: object) -> Inert:
        del args, kwargs
        made = super().__new__(cls)
        made.state = {}
        return made

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Takes any arguments, as the real class may."""

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        """Ignores an item of a mapping such as OrderedDict. No reader needs these items."""

    def append(self, item: object) -> None:
        """Ignores an item of a list subclass."""

    def extend(self, items: object) -> None:
        """Ignores several items of a list subclass."""


class _InertUnpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, elsewhere: Callable[[object], object] | None) -> None:
        super().__init__(file)
        self._elsewhere = elsewhere
        self._stand_ins: dict[tuple[str, str], type[Inert]] = {}

    def find_class(self, module: str, name: str, /) -> type[Inert]:
        top = module.partition(".")[0]
        if top == "builtins":
            harmless = name in _HARMLESS_BUILTINS
        else:
            harmless = top in _HARMLESS_MODULES or top not in sys.stdlib_module_names
        if not harmless:
            raise pickle.UnpicklingError(
                f"it asks to load {module}.{name}, which no checkpoint needs; Rekindle does not load it"
            )
        key = (module, name)
        if key not in self._stand_ins:
            self._stand_ins[key] = type("StandIn", (Inert,), {"of": f"{module}.{name}"})
        return self._stand_ins[key]

    def persistent_load(self, pid: object) -> object:
        if self._elsewhere is None:
            raise pickle.UnpicklingError("it refers to objects outside the file")
        return self._elsewhere(pid)


def load_inert(data: bytes, *, elsewhere: Callable[[object], object] | None = None) -> object:
    """Returns the pickled object, with classes replaced by Inert. Raises ValueError, which says why the
    pickle cannot be read.

    `elsewhere` is called for each reference to an object outside the pickle, which torch.save writes for a
    tensor's storage, and returns the replacement. Without `elsewhere` such a pickle is refused.
    """
    return load_next_inert(io.BytesIO(data), limit_bytes=len(data), elsewhere=elsewhere)


def load_next_inert(
    file: BinaryIO, *, limit_bytes: int, elsewhere: Callable[[object], object] | None = None
) -> object:
    """Does the same as `load_inert` for the pickle that begins at the file's position. Afterwards the
    position is after the pickle."""
    collecting = gc.isenabled()
    gc.disable()  # millions of objects, none of them garbage: 1.7 s instead of 4.2 s for 300,000 pieces
    try:
        with _memory_limit(memory_for(limit_bytes)):
            return _InertUnpickler(file, elsewhere).load()
    except _UNREADABLE as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    finally:
        if collecting:
            gc.enable()


def memory_for(size_bytes: int) -> int:
    """Returns the bytes of memory that a pickle of this size may take, including all objects made from it."""
    return MEMORY_BYTES_MIN + MEMORY_PER_BYTE * size_bytes


def limit_memory(more_bytes: int) -> None:
    """Limits the memory of this process from now on: it gets a MemoryError, and no OOM kill, if it takes more
    than `more_bytes` in addition."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as statm:
        used_bytes = int(statm.read().split()[0]) * resource.getpagesize()
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([used_bytes + more_bytes, *limits]), hard))


def scalars(state: dict[Any, Any]) -> dict[str, Scalar]:
    """Returns the plain items of a loaded dictionary."""
    return {key: value for key, value in state.items() if named_shortly(key) and is_scalar(value)}


def named_shortly(key: object) -> bool:
    """Whether a key may be an attribute's name. A pickle can refer to one long text thousands of times, and
    the text would be copied each time."""
    return isinstance(key, str) and len(key) <= TEXT_CHARS_MAX


def is_scalar(value: object) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if type(value) is str:
        return len(value) <= TEXT_CHARS_MAX
    return value is None or type(value) in (bool, float)


@contextmanager
def _memory_limit(more_bytes: int) -> Iterator[None]:
    """Limits the memory for a while: a few bytes of pickle can request gigabytes, and then raise a
    MemoryError instead of causing an OOM kill."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit_memory(more_bytes)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
