"""Tests which line of a log is the error that ended the training."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.rules import first_error
from detectors.rules.launchers import without_prefix
from detectors.rules.signatures import Signatures
from detectors.wire.base import EVIDENCE_BYTES_MAX
from tests.detectors.folds.error_lines import HANDLED, ROWS, TRACEBACK, first, first_error_code
from tests.detectors.folds.folding import START, at, pod


def test_the_first_error_that_is_no_echo_wins() -> None:
    errors = first_error.Errors()
    for n, line in enumerate(
        [
            "[rank1]: ncclRemoteError: remote process exited",
            "Watchdog caught collective operation timeout",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "OSError: [Errno 28] No space left on device",
        ]
    ):
        errors = first_error.observe(errors, line, at(n), ROWS)

    assert errors.error is not None
    assert (errors.error.code, errors.error.at) == ("log-cuda-oom", at(2))


TORCHRUN = [
    "Traceback (most recent call last):",
    '  File "torch/distributed/launcher/api.py", line 386, in launch_agent',
    "    raise ChildFailedError(",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "train.py FAILED",
]
"""Lines that torchrun 2.15 prints after every unsuccessful end of a worker."""
LOST_A_PEER = [
    "[rank0]: Traceback (most recent call last):",
    "[rank0]:     work.wait()",
    "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:39827. "
    "This is typically caused by a remote worker crashing.",
]
REMOTE = [
    "[rank3]: Traceback (most recent call last):",
    "[rank3]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3763, remote process "
    "exited or there was a network error, NCCL version 2.28.8",
    "[rank3]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
    "prematurely.",
    "[rank3]: Last error:",
]
"""Traceback of a remote error. The line that ends the traceback contains no name from NCCL; the next line
does."""
NO_ROOM = [
    "[rank0]: Traceback (most recent call last):",
    "[rank0]:     raise final_result",
    "[rank0]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([1])",
    "[rank0]: Traceback (most recent call last): (RANK 1)",
    "[rank0]:     with path.open(mode) as stream:",
    "[rank0]: OSError: [Errno 28] No space left on device",
]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("DistBackendError: NCCL error in: x.hpp:275, unhandled system error (run with", "log-nccl-system"),
        ("DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients", "log-store-timeout"),
        ("torch.DistStoreError: wait timeout after 600000ms, keys: /worker/1", "log-store-timeout"),
        ("RuntimeError: Timed out waiting 1800000ms for recv operation to complete", "log-nccl-timeout"),
        ("socketProgress: Connection closed by remote peer node-1<57434>", "log-nccl-remote"),
        (
            "DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.",
            "log-connection-reset",
        ),
    ],
)
def test_who_waited_in_vain_for_another_rank_is_not_taken_for_the_one_that_failed(
    line: str, code: str
) -> None:
    errors = first([TRACEBACK, line])

    assert errors.error is not None
    assert (errors.error.code, errors.propagated) == (code, True)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([*LOST_A_PEER, *TORCHRUN], "log-connection-reset"),
        ([*TORCHRUN, "  traceback : Signal 9 (SIGKILL) received by PID 10959"], "log-rank-killed"),
        ([*NO_ROOM, *TORCHRUN], "log-no-space"),
        ([*REMOTE, *TORCHRUN], "log-nccl-remote"),
        ([*REMOTE, "NET/IB : Got async event : port error"], "log-ib-completion"),
    ],
)
def test_what_torch_wraps_around_an_error_does_not_hide_it(lines: list[str], code: str) -> None:
    errors = first_error.Errors()
    for line in lines:
        errors = first_error.observe(errors, line, START, ROWS)

    assert errors.error is not None
    assert errors.error.code == code


def test_an_error_that_the_training_has_survived_does_not_hide_what_ended_it() -> None:
    fold = pod()
    for line in HANDLED:
        fold.line(line, START)
    fold.line("step 1", at(30))
    assert first_error_code(fold) == "log-traceback", "another rank may print a last step"
    fold.line("step 2", at(61))

    fold.line("ncclRemoteError: A call failed", at(3600))
    assert first_error_code(fold) == "log-nccl-remote"


def test_an_error_after_the_last_step_is_the_first_error_however_late_the_end_is() -> None:
    fold = pod()
    fold.line("step 1", START)
    for line in HANDLED:
        fold.line(line, at(1))
    fold.line("step 1", at(100))
    fold.line("ncclRemoteError: A call failed", at(600))
    fold.end(at(1800))

    assert first_error_code(fold) == "log-traceback"


def test_what_standard_output_puts_into_a_traceback_does_not_end_it() -> None:
    errors = first_error.Errors()
    for line in [
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "step 79/1000000 loss=0.5755",
        "[INFO]: saved",
        "[09:30:00]: ok",
        "torch.OutOfMemoryError: no room",
    ]:
        errors = first_error.observe(errors, line, START, ROWS)

    assert errors.error is not None
    assert errors.error.text == "torch.OutOfMemoryError: no room"


@pytest.mark.parametrize(
    "rank",
    [
        "",
        "3: ",
        "worker-1: ",
        "10.0.0.1: ",
        "node03: ",
        "llm-worker-0  | ",
        "[pod/llm-worker-0/main] ",
        "2026-11-21T09:30:00.123456789Z ",
        "2026-11-21T09:30:00.123456789Z stderr F [rank3]: ",
        "[rank3]: ",
        "[default3]:",
        "[default3]:[rank3]: ",
        "[1,3]<stderr>:",
        "(TaskRunner pid=1234, ip=10.0.0.1) ",
        "(EngineCore pid=7602) ERROR 04-07 00:57:46 ray_utils.py:45] ",
    ],
    ids=[
        "none",
        "srun --label",
        "pdsh",
        "pdsh by address",
        "pdsh by short name",
        "compose",
        "kubectl --prefix",
        "kubectl --timestamps",
        "runtime",
        "torch",
        "torchrun --tee",
        "both",
        "mpirun --tag-output",
        "Ray",
        "vLLM within Ray",
    ],
)
def test_the_last_line_of_a_traceback_is_the_error(rank: str) -> None:
    errors = first_error.Errors()
    for line in [
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "    raise ValueError('bad shape')",
        "ValueError: bad shape",
        "KeyError: later",
    ]:
        errors = first_error.observe(errors, rank + line, START, ROWS)

    assert errors.error is not None
    assert (errors.error.code, errors.error.text) == ("log-traceback", rank + "ValueError: bad shape")


def test_a_restarted_agent_goes_on_from_the_error_that_it_published() -> None:
    fold = pod()
    fold.line("step 1", START)
    fold.line("ncclRemoteError: A call failed", at(1))
    published = fold.published()
    assert published is not None

    again = pod()
    again.restore(published, Signatures())
    again.line("torch.OutOfMemoryError: CUDA out of memory.", at(2))

    assert first_error_code(again) == "log-cuda-oom"


WORDS = [
    TRACEBACK,
    "  File",
    "ValueError: bad",
    "ncclRemoteError",
    "CUDA out of memory",
    "Exception ignored in",
]
LINES = st.lists(
    st.one_of(st.text(max_size=200), st.sampled_from([*WORDS, *(f"[rank1]: {w}" for w in WORDS)]))
)


@given(LINES)
def test_any_lines_are_read_and_a_fault_with_a_name_never_gives_way_to_a_consequence(
    lines: list[str],
) -> None:
    errors, named = first_error.Errors(), False
    for n, line in enumerate(lines):
        errors = first_error.observe(errors, line, at(n * 0.01), ROWS)
        if errors.error is not None:
            assert len(errors.error.text.encode()) <= EVIDENCE_BYTES_MAX
            assert not (named and errors.propagated)
            named = errors.error.code == "log-cuda-oom"


@given(st.text(max_size=200))
def test_what_is_behind_a_prefix_is_the_end_of_the_line(line: str) -> None:
    assert line.endswith(without_prefix(line)[1])
