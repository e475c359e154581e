"""Tests which line of a traceback is the error, and which traceback counts."""

from __future__ import annotations

import pytest

from tests.detectors.folds.error_lines import BAR, HANDLED, OWN, TRACEBACK, code, first


@pytest.mark.parametrize("before", ["Exception ignored in: <function f at 0x7f>", "--- Logging error ---"])
def test_an_exception_that_python_ignores_is_no_error(before: str) -> None:
    assert code([before, *OWN]) == ""
    assert code([before, *OWN, *OWN]) == "log-traceback"


IN_ONE_LINE = r"Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    f()\n"
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


@pytest.mark.parametrize(
    "line",
    [
        f'{{"levelname": "ERROR", "message": "failed", "exc_info": "{IN_ONE_LINE}{ECC}", "lineno": 3}}',
        f'{{"event": "failed", "exception": "{IN_ONE_LINE}{ECC}\\nSearch for `cudaErrorECCUncorrectable\'"}}',
        f"[rank3]: {{'msg': 'Traceback (most recent call last):\\n  f()\\n{ECC}'}}",
        f'{{"exc_info": "{IN_ONE_LINE}{"  f()" + chr(92) + "n"}{ECC}"}}',
        f'{{"exc_info": "{IN_ONE_LINE}{("    frame " + "x" * 80 + chr(92) + "n") * 150}{ECC}"}}',
        f'{{"exc_info": "{IN_ONE_LINE}KeyError: 1\\n\\nDuring handling of the above exception, another'
        f' exception occurred:\\n\\n{IN_ONE_LINE}{ECC}"}}',
    ],
    ids=["python-json-logger", "structlog", "a dict of a rank", "one frame", "a long line", "chained"],
)
def test_a_traceback_that_a_logger_prints_in_one_line_has_its_exception_at_its_end(line: str) -> None:
    error = first([line]).error

    assert error is not None
    assert error.code == "log-cuda-ecc"
    assert error.text.endswith(ECC)
    assert first([line, *OWN]).error == error
    assert first([line]).open == ()


def test_a_traceback_in_one_line_without_a_known_error_is_one_as_well() -> None:
    own = f'{{"exc_info": "{IN_ONE_LINE}ValueError: expected \\"a\\", not b", "pid": 3}}'

    assert code([own]) == "log-traceback"
    assert code([rf'{{"msg": "{IN_ONE_LINE}"}}']) == ""


def test_an_exception_in_a_thread_counts_only_where_nothing_else_is_known() -> None:
    in_thread = ["Exception in thread Thread-7 (run):", *OWN]

    assert code(in_thread) == "log-thread-traceback"
    assert code([*in_thread, "ncclRemoteError: A call failed"]) == "log-nccl-remote"
    assert code([*in_thread, *OWN]) == "log-traceback"


@pytest.mark.parametrize(
    "lost",
    ["BrokenPipeError: [Errno 32] Broken pipe", "ConnectionResetError: [Errno 104] Connection reset by peer"],
)
def test_a_connection_that_a_thread_lost_does_not_excuse_the_program_that_fails_after_it(lost: str) -> None:
    # wandb/wandb issue 6449; Megvii-BaseDetection/YOLOX issue 34: the thread that pins memory
    in_thread = ["Exception in thread ChkStopThr:", TRACEBACK, "    self._send()", lost]

    assert first(in_thread).propagated
    assert code([*in_thread, *OWN]) == "log-traceback"
    assert code([*OWN, *in_thread]) == "log-traceback"
    assert first([TRACEBACK, "    self._send()", lost, *OWN]).propagated
    assert first([*in_thread, TRACEBACK, "    all_reduce()", lost]).propagated


def test_a_rank_that_lost_a_peer_is_not_blamed_because_a_thread_had_lost_something_before() -> None:
    in_thread = [
        "Exception in thread wandb:",
        TRACEBACK,
        "    self._send()",
        "ConnectionResetError: [Errno 104] x",
    ]
    chained = ["", "During handling of the above exception, another exception occurred:", ""]
    chained += [TRACEBACK, "    send()", "wandb.errors.CommError: could not upload"]
    lost = [
        TRACEBACK,
        "    all_reduce()",
        "DistBackendError: NCCL error in: x, remote process exited or there was a network error",
    ]
    cleanup = [TRACEBACK, "    close()", "RuntimeError: cannot clean up"]

    assert first([*in_thread, *lost, *cleanup]).propagated
    assert first([*in_thread, *chained]).propagated
    assert first([*in_thread, *chained, *lost]).propagated


def test_of_chained_exceptions_the_first_one_counts_unless_a_later_one_says_what_broke() -> None:
    during = "During handling of the above exception, another exception occurred:"
    full = [TRACEBACK, "    save()", "OSError: [Errno 28] No space left on device"]
    lost = [TRACEBACK, "    destroy()", "RuntimeError: NCCL communicator was aborted on rank 1."]
    empty = [TRACEBACK, "    get()", "_queue.Empty"]
    killed = [TRACEBACK, "    get()", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."]

    assert code([*OWN, during, *lost]) == "log-traceback"
    assert code([*OWN, during, *full]) == "log-no-space"
    assert code([*full, during, *OWN]) == "log-no-space"
    assert code([*empty, during, *killed]) == "log-host-oom"


@pytest.mark.parametrize(
    "line",
    [
        "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 1",
        "ray.exceptions.RayTaskError(ValueError): ray::train() (pid=7, ip=10.0.0.1)",
    ],
)
def test_what_repeats_that_something_failed_gives_way_to_what_says_why(line: str) -> None:
    assert first([TRACEBACK, line]).propagated
    assert code([TRACEBACK, line, *OWN]) == "log-traceback"
    assert code([TRACEBACK, line, "Connection reset by peer"]) == "log-connection-reset"


def test_a_failed_command_does_not_hide_why_the_compiler_failed() -> None:
    """https://github.com/pytorch/pytorch/issues/90178"""
    lines = [
        "/tmp/tmpq/main.c:2:10: fatal error: cuda.h: No such file or directory",
        "compilation terminated.",
        TRACEBACK,
        "subprocess.CalledProcessError: Command '['gcc', 'main.c']' returned non-zero exit status 1.",
    ]

    assert code(lines) == "log-build"


def test_a_message_that_goes_on_names_the_error_more_closely() -> None:
    nccl = "[rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp:77, unhandled cuda error"
    last = ["[rank0]: Last error:", "[rank0]: Cuda failure 'out of memory'"]
    paddle = ["C++ Traceback (most recent call last):", "0   paddle::f()", "ResourceExhaustedError: ", ""]
    internal = "torch.distributed.DistBackendError: NCCL error in: x.cpp:77, internal error"

    assert code([TRACEBACK, nccl, *last]) == "log-cuda-oom"
    assert code([*paddle, "Out of memory error on GPU 0."]) == "log-cuda-oom"
    assert code([TRACEBACK, internal, "Last error:", "socketPollConnect: returned"]) == "log-nccl-system"


@pytest.mark.parametrize(
    ("first_rank", "second_rank"),
    [("[rank0]: ", "[rank1]: "), ("20: ", "203: "), ("20.1.2.3: ", "20.1.2.4: ")],
    ids=["torch", "srun --label", "pdsh by address"],
)
def test_tracebacks_that_ranks_print_at_once_are_each_read_to_their_end(
    first_rank: str, second_rank: str
) -> None:
    lost = [
        "    work.wait()",
        "torch.DistBackendError: NCCL error: remote process exited",
        "ncclRemoteError: x",
    ]
    own = ["    raise ValueError", "ValueError: bad shape"]
    lines = [
        first_rank + TRACEBACK,
        second_rank + TRACEBACK,
        *(first_rank + line for line in lost),
        *(second_rank + line for line in own),
    ]

    assert code(lines) == "log-traceback"


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("Tue Mar 10 16:52:53 2020[0]<stderr>:", "Tue Mar 10 16:52:54 2020[0]<stderr>:"),
        ("ERROR 04-07 00:57:46 ray_utils.py:45] ", "ERROR 04-07 00:57:47 ray_utils.py:45] "),
    ],
    ids=["horovodrun", "vLLM"],
)
def test_a_traceback_whose_prefix_has_a_time_ends_in_a_later_second(begin: str, end: str) -> None:
    lines = [
        begin + TRACEBACK,
        begin + '  File "train.py", line 3, in <module>',
        end + "ValueError: bad shape",
    ]

    assert code(lines) == "log-traceback"


def test_a_bar_that_was_drawn_before_a_traceback_does_not_hide_its_exception() -> None:
    lines = [f"{BAR}[rank3]: {TRACEBACK}", "[rank3]:     save()", "[rank3]: ValueError: bad shape"]

    assert code(lines) == "log-traceback"


@pytest.mark.parametrize(
    "line",
    [
        "[E ProcessGroupNCCL.cpp:455] Some NCCL operations have failed or timed out.",
        "llm-0:15:91 [3] NCCL WARN Call to recv failed : Connection reset by peer",
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-21T09:30:00 ***",
        "srun: error: n1: task 3: Exited with exit code 1",
    ],
)
def test_what_others_print_behind_an_exception_is_not_its_message(line: str) -> None:
    assert code([*OWN, line]) == "log-traceback"


def test_an_announced_exception_without_a_traceback_hides_no_later_one() -> None:
    assert code(["Exception ignored in: <generator>", "SystemError: x", *OWN]) == "log-traceback"


def test_a_members_exception_of_a_group_is_the_error() -> None:
    lines = [
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "a.py", line 1, in <module>',
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        '    |   File "a.py", line 3, in f',
        "    | ValueError: bad shape",
    ]
    error = first(lines).error

    assert error is not None
    assert (error.code, error.text.strip()) == ("log-traceback", "| ValueError: bad shape")


def test_source_code_in_a_traceback_is_no_error() -> None:
    assert (
        code([TRACEBACK, '    raise RuntimeError("Connection refused")', "KeyError: 'x'"]) == "log-traceback"
    )


def test_after_a_wait_in_vain_an_exception_is_how_the_process_took_it() -> None:
    waited = "[rank0]:[E ProcessGroupNCCL.cpp:1] Watchdog caught collective operation timeout"
    lost = "[rank0]: Connection reset by peer"
    other = [f"[rank1]: {line}" for line in OWN]

    assert code([waited, *other]) == "log-nccl-timeout"
    assert code([lost, *(f"[rank0]: {line}" for line in OWN)]) == "log-connection-reset"
    assert code([lost, *other]) == "log-traceback", "another rank went first, and printed later"
    assert code([lost, *other], every_s=20) == "log-connection-reset"
    assert code([waited, "[rank1]: torch.OutOfMemoryError: CUDA out of memory"]) == "log-cuda-oom"


def test_a_handled_traceback_does_not_mask_what_ended_a_program_whose_steps_are_unread() -> None:
    goes_on = [f"epoch done, accuracy 0.{n}" for n in range(300)]
    remote = "ncclRemoteError: A call failed"

    assert code([*HANDLED, *goes_on, remote], every_s=1) == "log-nccl-remote"
    assert code([*HANDLED, *goes_on], every_s=1) == ""
    assert code([*HANDLED, *goes_on[:50], remote], every_s=1) == "log-traceback", (
        "it may be the end of a rank"
    )
    assert code([*HANDLED, *goes_on, remote]) == "log-traceback", "within a moment nothing has been survived"


@pytest.mark.parametrize("line", ["loss: 0.5", "INFO: saved", "Epoch: 3", "step: 7", "WARNING: slow"])
def test_what_looks_like_a_name_and_a_colon_is_no_exception(line: str) -> None:
    assert code([TRACEBACK, '  File "train.py"', line]) == ""
