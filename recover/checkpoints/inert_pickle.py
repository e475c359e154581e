"""Reads a pickle as plain data, for readers of PyTorch formats: nothing that it names is imported or called.

Every class becomes an `Inert` stand-in that keeps its state and does nothing. A pickle that names a function
or class of the standard library that no checkpoint needs (os.system, builtins.eval) is refused outright.

What is left to a hostile file is to waste memory, which is capped here while it is loaded, and time, which
child_process.py caps, since nothing within the process can: what a key is, and how long its hash takes, is
the file's to say. So a pickle of a tenant is loaded in a process of its own only, and what is asked of it
leaves that process as plain data.
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
"""Numbers of at most 64 bits, and texts of at most TEXT_CHARS_MAX characters."""

TEXT_CHARS_MAX = 256

MEMORY_BYTES_MIN = 256 * 2**20
MEMORY_PER_BYTE = 32
"""Measured: the objects of a DCP index of 300,000 pieces take 13 times the bytes of their pickle."""

_HARMLESS_MODULES = frozenset(
    {"_codecs", "argparse", "collections", "copyreg", "datetime", "decimal", "enum", "fractions"}
    | {"functools", "pathlib", "types", "typing", "uuid"}
)
"""_codecs.encode is how torch.save writes bytes; an argparse.Namespace holds Megatron's arguments."""
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
"""What pickle.load raises on damaged input; its documentation names no complete list."""


class Inert:
    """Stands for an object of any class. `state` is what the pickle would have set as its attributes."""

    of: ClassVar[str] = ""
    """The class that it stands for, as `torch.FloatStorage`."""

    state: dict[str, Any]

    def __new__(cls, *args: object, **kwargs: object) -> Inert:
        del args, kwargs
        made = super().__new__(cls)
        made.state = {}
        return made

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Takes anything, as the real class may."""

    def __setstate__(self, state: object) -> None:
        if isinstance(state, dict):
            self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        """An OrderedDict gets its items so; none that the readers need is one."""

    def append(self, item: object) -> None:
        """A list subclass gets its items so."""

    def extend(self, items: object) -> None:
        """The same, several at once."""


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
    """The pickled object, classes replaced by Inert. Raises ValueError saying why it cannot be read.

    `elsewhere` is given each reference to an object outside the pickle, as torch.save writes for a tensor's
    storage, and answers what stands for it. Without it such a pickle is refused.
    """
    return load_next_inert(io.BytesIO(data), limit_bytes=len(data), elsewhere=elsewhere)


def load_next_inert(
    file: BinaryIO, *, limit_bytes: int, elsewhere: Callable[[object], object] | None = None
) -> object:
    """As `load_inert`, of the pickle that begins where the file stands; it then stands behind it."""
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
    """How much memory a pickle of so many bytes may take, with all that is made of it."""
    return MEMORY_BYTES_MIN + MEMORY_PER_BYTE * size_bytes


def limit_memory(more_bytes: int) -> None:
    """From now on this process gets a MemoryError where it takes so much more than it has: no OOM kill."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as statm:
        used_bytes = int(statm.read().split()[0]) * resource.getpagesize()
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([used_bytes + more_bytes, *limits]), hard))


def scalars(state: dict[Any, Any]) -> dict[str, Scalar]:
    """The plain items of a dictionary that was loaded."""
    return {key: value for key, value in state.items() if named_shortly(key) and is_scalar(value)}


def named_shortly(key: object) -> bool:
    """Whether a key may be an attribute's name. A pickle can refer to one long text thousands of times, and
    each time it would be handed over once more."""
    return isinstance(key, str) and len(key) <= TEXT_CHARS_MAX


def is_scalar(value: object) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if type(value) is str:
        return len(value) <= TEXT_CHARS_MAX
    return value is None or type(value) in (bool, float)


@contextmanager
def _memory_limit(more_bytes: int) -> Iterator[None]:
    """A few bytes of pickle can ask for gigabytes: this makes that a MemoryError instead of an OOM kill."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit_memory(more_bytes)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
