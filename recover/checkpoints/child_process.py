"""Runs work that may never end in a separate process, and ends that process. Used by the readers of pickles.

The unpickler is C code that checks no clock: a few bytes keep it busy without end, by tuples nested in each
other or by keys that collide, and nothing within its process can interrupt it. So a child does the work, the
kernel ends the child once its CPU time is used up, and the scan continues with the next older checkpoint. The
limit is CPU time and not time by the clock, because a slow file system is no sign of a hostile file. The scan
has one thread, so a fork is safe; it costs a few milliseconds and needs no permission.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import NoReturn, TypeVar

import msgspec

from recover.checkpoints.folder import ODD, TOO_LARGE, UNREADABLE, DamagedError, odd, why
from recover.checkpoints.inert_pickle import MEMORY_BYTES_MIN, limit_memory

__all__ = ["ANSWER_BYTES_MAX", "CPU_S_MIN", "cpu_s_for", "in_child", "more_cpu_for"]

CPU_S_MIN = 2.0
CPU_S_PER_BYTE = 1.0 / 2**20
"""More than ten times the time that an index of a torch-dcp takes, with the sum over its pieces (0.06 s for a
MiB)."""

ANSWER_BYTES_MAX = 64 * 2**20
"""Maximum size of an answer. The pieces of the largest index of a torch-dcp that is read are 34 MB, and
nothing else comes near."""

POLL_MS = 100
_CHUNK_BYTES = 2**20
_LENGTH_BYTES = 8
"""Size of the length of the answer, which comes first."""
_GOOD, _DAMAGED = b"+", b"-"

T = TypeVar("T")


def cpu_s_for(size_bytes: int) -> float:
    """Returns the CPU time in seconds that is allowed for so many bytes."""
    return CPU_S_MIN + size_bytes * CPU_S_PER_BYTE


def more_cpu_for(size_bytes: int) -> None:
    """Allows more CPU time within `in_child`, because more bytes were read. Elsewhere this does nothing."""
    left_s, _ = signal.getitimer(signal.ITIMER_PROF)
    if left_s:
        signal.setitimer(signal.ITIMER_PROF, left_s + size_bytes * CPU_S_PER_BYTE)


def in_child(
    what: str,
    work: Callable[[], T],
    type_: type[T],
    *,
    cpu_s: float,
    check_time: Callable[[], None],
    memory_bytes: int = MEMORY_BYTES_MIN,
) -> T:
    """Returns the answer of `work`, decoded as `type_`. `what` is the name of the input in messages.

    Raises DamagedError if `work` does, if it needs more than `cpu_s` of CPU time or `memory_bytes` more
    memory than this process has, if its answer is longer than ANSWER_BYTES_MAX, or if it ends in another way.
    Also raises what `check_time` raises, which is called while there is no answer.
    """
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError as error:  # the limit of processes is reached
        os.close(reading)
        os.close(writing)
        raise DamagedError(f"{what} {UNREADABLE}: {why(error)}") from error
    if not child:
        _work_and_end(what, work, writing, cpu_s, memory_bytes)
    os.close(writing)
    try:
        answer = _received(what, reading, check_time)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)  # the child has answered, ended, or must end now
        _, status = os.waitpid(child, 0)
    if answer.startswith(_GOOD):
        return msgspec.msgpack.decode(memoryview(answer)[1:], type=type_)
    if answer:
        raise DamagedError(answer[1:].decode())
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        told = f"a read takes more than {cpu_s:.0f} s of CPU time, which no file of a trainer needs"
        raise DamagedError(f"{what} {UNREADABLE}: {told}")
    # A SIGKILL is from the kernel, because the child takes too much memory.
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        raise DamagedError(f"{what} is {TOO_LARGE}: the process that read it was killed")
    raise DamagedError(f"{what} {UNREADABLE}: the process that read it ended with status {status}")


def _received(what: str, reading: int, check_time: Callable[[], None]) -> bytearray:
    """Returns the complete answer; nothing if it was not written to its end. Raises DamagedError if the
    answer is too long: this process itself has no limit, and must not end because of a file."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    answer = bytearray()
    while len(answer) <= _LENGTH_BYTES + ANSWER_BYTES_MAX:
        if not poll.poll(POLL_MS):
            check_time()
        elif part := os.read(reading, _CHUNK_BYTES):
            answer += part
        else:
            length_bytes = int.from_bytes(answer[:_LENGTH_BYTES], "big")
            del answer[:_LENGTH_BYTES]
            return answer if len(answer) == length_bytes else bytearray()
    raise _too_long(what)


def _too_long(what: str) -> DamagedError:
    told = f"its description has more than {ANSWER_BYTES_MAX} bytes, and no file of a trainer has as many"
    return DamagedError(f"{what} {UNREADABLE}: {told}")


def _work_and_end(
    what: str, work: Callable[[], object], writing: int, cpu_s: float, memory_bytes: int
) -> NoReturn:
    """Runs in the child. Nothing of the parent's is flushed, closed or ended twice."""
    status = 1
    try:
        gc.disable()  # this process ends before there is garbage
        limit_memory(memory_bytes)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        mark, answer = _answer(what, work)
        with open(writing, "wb") as pipe:
            pipe.write((len(mark) + len(answer)).to_bytes(_LENGTH_BYTES, "big") + mark)
            pipe.write(answer)
        status = 0
    except BaseException:  # noqa: BLE001  the outermost loop of this process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _answer(what: str, work: Callable[[], object]) -> tuple[bytes, bytes]:
    try:
        answer = msgspec.msgpack.encode(work())
        if len(_GOOD) + len(answer) > ANSWER_BYTES_MAX:
            raise _too_long(what)
        return _GOOD, answer
    except DamagedError as error:
        told = str(error)
    except ODD as error:
        told = odd(error)
    return _DAMAGED, told.encode("ascii", "backslashreplace")
