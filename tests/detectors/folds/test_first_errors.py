"""Which line of a log is the error that ended the training."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detectors.folds.pods import PodFold
from detectors.rules import first_error
from detectors.rules.launchers import without_prefix
from detectors.rules.signatures import Signatures
from detectors.wire.contract import EVIDENCE_BYTES_MAX
from tests.detectors.folds.folding import ERRORS, START, at, pod

ROWS = first_error.compiled(ERRORS)


def first(lines: Iterable[str], every_s: float = 0.01) -> first_error.Errors:
    errors = first_error.Errors()
    for n, line in enumerate(lines):
        errors = first_error.observe(errors, line, at(n * every_s), ROWS)
    return errors


def code(lines: Iterable[str], every_s: float = 0.01) -> str:
    error = first(lines, every_s).error
    return error.code if error is not None else ""


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


TRACEBACK = "Traceback (most recent call last):"
TORCHRUN = [
    "Traceback (most recent call last):",
    '  File "torch/distributed/launcher/api.py", line 386, in launch_agent',
    "    raise ChildFailedError(",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "train.py FAILED",
]
"""What torchrun 2.15 prints after any end of a worker but a good one."""
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
"""The error that ends the traceback has no name of NCCL's in it; that follows."""
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


def first_error_code(fold: PodFold) -> str:
    published = fold.published()
    assert published is not None
    assert published.first_error is not None
    return published.first_error.code


HANDLED = ["Traceback (most recent call last):", "ValueError: the metrics' server answered nonsense"]


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


OWN = [TRACEBACK, '  File "train.py", line 3, in <module>', "ValueError: bad shape"]
BAR = " 12%|#2   | 12/100 [00:10<01:15,  1.17it/s]"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("train.py: error: unrecognized arguments: --lrr 0.1", "log-usage"),
        ("Error: No such option: --lrr", "log-usage"),
        ("Could not override 'trainer.lrr'.", "log-usage"),
        ("python3: can't open file '/app/trian.py': [Errno 2] No such file or directory", "log-not-started"),
        ("/usr/bin/python3: No module named train", "log-not-started"),
        ("SyntaxError: invalid syntax", "log-not-started"),
        ("exec /app/run.sh: exec format error", "log-not-started"),
        ("python: error while loading shared libraries: libfoo.so.1: cannot open", "log-not-started"),
        ("/bin/bash: line 1: torchrunn: command not found", "log-shell"),
        ("sh: 1: torchrunn: not found", "log-shell"),
        ("Error executing job with overrides: ['lr=0.1']", "log-shell"),
        ("Segmentation fault (core dumped)", "log-crash"),
        ("Fatal Python error: Segmentation fault", "log-crash"),
        ("free(): invalid pointer", "log-crash"),
        ("F1121 09:30:00.000000    77 service.cc:12] Check failed: ok", "log-check-failed"),
        ("terminate called after throwing an instance of 'std::out_of_range'", "log-aborted"),
        ("Aborted (core dumped)", "log-aborted"),
        ("run.sh: line 5:    77 Killed                  python train.py", "log-aborted"),
    ],
)
def test_a_program_that_ends_without_a_traceback_has_an_error_with_its_text(line: str, expected: str) -> None:
    errors = first(["starting", line, "done"])

    assert errors.error is not None
    assert (errors.error.code, errors.error.text, errors.propagated) == (expected, line, False)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.", "log-host-oom"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0.", "log-host-oom"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8 GiB", "log-host-oom"),
        ("RuntimeError: NPU out of memory. Tried to allocate 2 GiB", "log-cuda-oom"),
        ("CUDA error: uncorrectable ECC error encountered", "log-cuda-ecc"),
        ("RuntimeError: CUDA error: system not yet initialized", "log-cuda-fabric"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "log-cuda-no-device"),
        ("RuntimeError: HIP error: unspecified launch failure", "log-hip-error"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "log-cudnn"),
        ("OSError: (External) CUBLAS error(13)", "log-cuda-error"),
        ("NET/IB : mlx5_0:1 Got async event : port error", "log-ib-completion"),
        ("OSError: [Errno 122] Disk quota exceeded: '/data/x'", "log-no-space"),
        ("EOFError: Ran out of input", "log-checkpoint"),
        ("FloatingPointError: Loss became infinite or NaN at iteration=7!", "log-nan"),
        ("EZ9999: Inner Error!", "log-ascend"),
        ("huggingface_hub.errors.LocalEntryNotFoundError: An error happened", "log-download"),
        ("exits with return code = -9", "log-rank-killed"),
        ("h:1:2 [1] init.cc:80 NCCL WARN Duplicate GPU detected : rank 1 and rank 0", "log-nccl-setup"),
        ("RuntimeError: cuda runtime error (2) : out of memory at /pytorch/THCStorage.cu:58", "log-cuda-oom"),
        ("InternalError: Failed copying from CPU to GPU: Dst tensor is not initialized.", "log-cuda-oom"),
        ("RuntimeError: Unable to find a valid cuDNN algorithm to run convolution", "log-cudnn"),
        ("ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'", "log-build"),
        ("INTERNAL: Core halted unexpectedly: INTERNAL: Accelerator device halted", "log-tpu-halted"),
        ("ValueError: NaN loss encountered", "log-nan"),
        ("h:1:2 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a", "log-shm"),
    ],
)
def test_a_fault_of_the_rank_itself_is_named_by_what_broke(line: str, expected: str) -> None:
    for lines in ([line], [TRACEBACK, "    raise it", line]):
        errors = first(lines)
        assert errors.error is not None
        assert (errors.error.code, errors.propagated) == (expected, False)


@pytest.mark.parametrize(
    "line",
    [
        "[rank1]:[E ProcessGroupNCCL.cpp:1] [Rank 1] Heartbeat monitor timed out!",
        "[rank2]:[F ProcessGroupNCCL.cpp:1614] Terminating the process after attempting to dump debug info",
        "RuntimeError: Rank 3 successfully reached monitoredBarrier, but received errors while waiting",
        "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection failed",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15",
        "lightning.pytorch.utilities.exceptions.SIGTERMException",
        "KeyboardInterrupt",
        "RuntimeError: CUDA error: the MPS client has been terminated by the server",
        "CUDA failure: cudaErrorMpsServerNotReady",
        "NET/IB : Got completion from peer 10.0.0.2<39138> with status=12 opcode=0 len=0 vendor err 129",
        "NET/IB: Got completion with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RDMA_WRITE(1)",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "TimeoutError: no answer",
        "EI0006: Getting socket times out.",
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: x",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.",
        "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: x",
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-21T09:30:00 ***",
        "tensorflow.python.framework.errors_impl.AbortedError: Session handle is not found: x",
    ],
)
def test_a_peers_end_or_an_end_that_was_asked_for_is_no_fault_of_the_rank(line: str) -> None:
    for lines in ([line], [TRACEBACK, "    raise it", line], [TRACEBACK, line, *OWN, "Aborted"]):
        errors = first(lines)
        assert errors.error is not None
        assert errors.propagated, errors.error


@pytest.mark.parametrize(
    "line",
    [
        "E cuda_driver.cc:268] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device",
        "W Could not load dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared",
        "NCCL INFO Call to connect returned Connection refused, retrying",
        "wandb: Network error (ConnectionResetError), entering retry loop.",
        "WARNING:urllib3.connectionpool:Retrying (Retry(total=4)) after 'Connection reset by peer'",
        BAR,
        "step 7 loss nan grad_norm inf",
    ],
)
def test_a_line_after_which_programs_go_on_is_no_error(line: str) -> None:
    assert code([line]) == ""


@pytest.mark.parametrize("before", ["Exception ignored in: <function f at 0x7f>", "--- Logging error ---"])
def test_an_exception_that_python_ignores_is_no_error(before: str) -> None:
    assert code([before, *OWN]) == ""
    assert code([before, *OWN, *OWN]) == "log-traceback"


def test_an_exception_in_a_thread_counts_only_where_nothing_else_is_known() -> None:
    in_thread = ["Exception in thread Thread-7 (run):", *OWN]

    assert code(in_thread) == "log-thread-traceback"
    assert code([*in_thread, "ncclRemoteError: A call failed"]) == "log-nccl-remote"
    assert code([*in_thread, *OWN]) == "log-traceback"


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


def test_tracebacks_that_ranks_print_at_once_are_each_read_to_their_end() -> None:
    lost = [
        "    work.wait()",
        "torch.DistBackendError: NCCL error: remote process exited",
        "ncclRemoteError: x",
    ]
    own = ["    raise ValueError", "ValueError: bad shape"]
    lines = [
        "[rank0]: " + TRACEBACK,
        "[rank1]: " + TRACEBACK,
        *(f"[rank0]: {line}" for line in lost),
        *(f"[rank1]: {line}" for line in own),
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
