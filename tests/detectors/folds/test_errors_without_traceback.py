"""The error of a program that ends without a traceback is in its last lines."""

# ruff: noqa: E501  the lines are kept whole

from __future__ import annotations

import pytest

from tests.detectors.folds.error_lines import BAR, OWN, TRACEBACK, code, first


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
        (
            "W1212 04:02:33.403934 24044 init.cc:205] *** SIGSEGV (@0x0) received by PID 24044 (TID 0x7f64) from PID 0; stack trace: ***",
            "log-crash",
        ),
        (
            "Container rank 0 status failed cmd ['/usr/bin/python3.8', '-u', 'train.py'] code -9 log log/default.fpwuxo.0.log",
            "log-rank-killed",
        ),
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
        (
            "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 5836945152 vs 58369450",
            "log-no-space",
        ),
        # pytorch/pytorch issue 10577
        ("RuntimeError: write(): fd 29 failed with Input/output error", "log-storage"),
        (
            'safetensors_rust.SafetensorError: IoError(Os { code: 5, kind: Uncategorized, message: "Input/output error" })',
            "log-storage",
        ),
        (
            "OSError: Can't read data (file read failed: errno = 5, error message = 'Input/output error', buf = 0x7f)",
            "log-storage",
        ),
        ("EOFError: Ran out of input", "log-checkpoint"),
        ("FloatingPointError: Loss became infinite or NaN at iteration=7!", "log-nan"),
        ("EZ9999: Inner Error!", "log-ascend"),
        ("RuntimeError: copy_d2d NPU function error: HBM MULTI BIT ECC ERROR.", "log-ascend-device"),
        ("RuntimeError: ACL stream synchronize failed, error code:507054", "log-ascend-device"),
        ("RuntimeError: NPU function error: UCE ERROR, error code is 507053", "log-ascend-device"),
        ("RuntimeError: NPU function error: SUSPECT REMOTE ERROR, error code is 507057", "log-ascend"),
        ("huggingface_hub.errors.LocalEntryNotFoundError: An error happened", "log-download"),
        ("exits with return code = -9", "log-rank-killed"),
        ("ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.", "log-rank-killed"),
        ("ERROR:composer.cli.launcher:Global rank 0 (PID 77) exited with code -11", "log-rank-killed"),
        # NVIDIA/nccl-tests issue 206, openucx/ucx issue 8229
        (
            "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
            "log-locked-memory",
        ),
        (
            "ib_iface.c:920  UCX  ERROR ibv_create_cq(cqe=4096) failed: Cannot allocate memory",
            "log-locked-memory",
        ),
        ("h:1:2 [1] init.cc:80 NCCL WARN Duplicate GPU detected : rank 1 and rank 0", "log-nccl-setup"),
        ("RuntimeError: cuda runtime error (2) : out of memory at /pytorch/THCStorage.cu:58", "log-cuda-oom"),
        ("InternalError: Failed copying from CPU to GPU: Dst tensor is not initialized.", "log-cuda-oom"),
        ("RuntimeError: Unable to find a valid cuDNN algorithm to run convolution", "log-cudnn"),
        ("ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'", "log-build"),
        ("INTERNAL: Core halted unexpectedly: INTERNAL: Accelerator device halted", "log-tpu-halted"),
        ("ValueError: NaN loss encountered", "log-nan"),
        ("h:1:2 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a", "log-shm"),
        # MIC-DKFZ/nnUNet issue 1519, ultralytics/ultralytics issue 24536
        ("RuntimeError: CUDA error: uncorrectable NVLink error detected during", "log-cuda-nvlink"),
        (
            "RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
            "log-cuda-contained",
        ),
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "log-cuda-no-device"),
        ("FatalError: `Erroneous arithmetic operation` is detected by the operating system.", "log-crash"),
        ("Fatal Python error: Floating-point exception", "log-crash"),
        ("Fatal Python error: init_import_site: Failed to import the site module", "log-crash"),
        # ray-project/ray: Abseil's handler of signals, in each worker
        (
            "(WorkerDict pid=123, ip=10.0.0.4) *** SIGSEGV received at time=1731000000 on cpu 12 ***",
            "log-crash",
        ),
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
        "h:1:2 [0] misc/ibvwrap.cc:190 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1",
        "h:1:2 [0] misc/ibvwrap.cc:190 NCCL WARN Call to ibv_modify_qp failed with error No route to host",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "TimeoutError: no answer",
        "EI0006: Getting socket times out.",
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: x",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.",
        "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: x",
        "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-21T09:30:00 ***",
        "tensorflow.python.framework.errors_impl.AbortedError: Session handle is not found: x",
        # horovod/horovod issue 1950
        "An MPI communication peer process has unexpectedly disconnected.  This",
        "FatalError: `Termination signal` is detected by the operating system.",
        "RuntimeError: NPU function error: HCCL OP RETRY FAILED, error code is 507904",
        "RuntimeError: FORCE STOP.",
    ],
)
def test_a_peers_end_or_an_end_that_was_asked_for_is_no_fault_of_the_rank(line: str) -> None:
    for lines in ([line], [TRACEBACK, "    raise it", line], [TRACEBACK, line, *OWN, "Aborted"]):
        errors = first(lines)
        assert errors.error is not None
        assert errors.propagated, errors.error


@pytest.mark.parametrize(
    "aborted",
    [
        ["Fatal Python error: Aborted"],
        [
            "C++ Traceback (most recent call last):",
            "0   paddle::framework::SignalHandle(char const*, int)",
            "FatalError: `Process abort signal` is detected by the operating system.",
        ],
    ],
    ids=["CPython", "Paddle"],
)
def test_a_process_that_aborts_has_lost_a_peer_if_its_log_says_so(aborted: list[str]) -> None:
    lost = (
        "[Rank 1] raised an async exception: NCCL error: remote process exited or there was a network error"
    )
    of_two_ranks = [f"(Worker pid=1) {lost}", *(f"(Worker pid=2) {each}" for each in aborted)]

    for lines in ([lost, *aborted], [*aborted, lost], of_two_ranks):
        errors = first(lines)
        assert errors.error is not None
        assert errors.error.code == "log-nccl-remote", lines
    alone = first(aborted).error
    assert alone is not None
    assert alone.code in ("log-aborted", "log-python-aborted")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        # pytorch/torchtitan issue 1066
        ("[rank0]:Fatal Python error: none_dealloc: deallocating None", "log-crash"),
        ("Fatal Python error: take_gil: PyMUTEX_LOCK(gil->mutex) failed", "log-crash"),
        ("failed to allocate 2.0G (2 bytes) from device: CUDA_ERROR_ECC_UNCORRECTABLE: x", "log-cuda-ecc"),
    ],
)
def test_a_crash_or_a_broken_device_is_read_whatever_words_are_beside_it(line: str, code: str) -> None:
    error = first([line]).error
    assert error is not None
    assert error.code == code


@pytest.mark.parametrize(
    "line",
    [
        "E cuda_driver.cc:268] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device",
        # ExplainableML/cosmos issue 3: each sample that OpenCLIP leaves out
        "WARNING: Handling webdataset error (ConnectionResetError(104, 'Connection reset by peer')). Ignoring.",
        "WARNING: Handling webdataset error (OSError('[Errno 5] Input/output error: x')). Ignoring.",
        "slurmstepd: error: couldn't chdir to `/home/x': No such file or directory: going to /tmp instead",
        # tensorflow/tensorflow issue 52123, talmolab/sleap issue 2001: TensorFlow asks for less, and goes on
        "E cuda_driver.cc:733] failed to allocate 9.90G (10631275520 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: x",
        "W host_allocator.cc:9] failed to allocate 2.0G (2147483648 bytes) from device: RESOURCE_EXHAUSTED: x",
        "E cuda_driver.cc:924] failed to alloc 17179869184 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "E cuda_driver.cc:764] failed to alloc 2740606464 bytes unified memory; result: CUDA_ERROR_OUT_OF_MEMORY: x",
        "W Could not load dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared",
        "NCCL INFO Call to connect returned Connection refused, retrying",
        "wandb: Network error (ConnectionResetError), entering retry loop.",
        "WARNING:urllib3.connectionpool:Retrying (Retry(total=4)) after 'Connection reset by peer'",
        BAR,
        "step 7 loss nan grad_norm inf",
        # sgl-project/sglang issue 4289: each rank prints it at its start
        "h:1:2 [0] NCCL INFO NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file: "
        "No such file or directory : when loading libnccl-net.so",
        # Lightning-AI/pytorch-lightning issue 555: NCCL leaves out the device, and uses another one or sockets
        "[0] misc/ibvwrap.cc:212 NCCL WARN Call to ibv_open_device failed",
        "/usr/bin/ld: cannot find -laio: No such file or directory",
        "[h:00001] mca_base_component_repository_open: unable to open mca_btl_openib: librdmacm.so.1: cannot open "
        "shared object file: No such file or directory (ignored)",
        "W retrying_utils.cc:132] The operation failed and will be automatically retried in 1.2 seconds (attempt 1 "
        "out of 10), caused by: UNAVAILABLE: Error executing an HTTP request",
        # pytorch/xla issue 6771: all tasks end
        "I coordination_service.cc:1195] Shutdown barrier in coordination service has passed.",
        "I coordination_service.cc:686] /job:jax_worker/replica:0/task:3 has disconnected from coordination service.",
        "2023-03-08 12:31:36 | WARNING | fairseq.trainer | OOM: Ran out of memory with exception: CUDA out of memory.",
    ],
)
def test_a_line_after_which_programs_go_on_is_no_error(line: str) -> None:
    assert code([line]) == ""


def test_an_ascend_device_that_its_driver_lost_is_no_lost_peer() -> None:
    """Lines of vllm-project/vllm-ascend issue 8186. A lost peer is called `lost heartbeat`, too."""
    errors = first(
        [
            "[PID: 389] 2026-05-01-10:59:14.702.326 Device_Absent/Abnormal(EL0001): Device not found or invalid.",
            "        Possible Cause: Device does not exist or is abnormal.",
            "        TraceBack (most recent call last):",
            "        Device[1] lost heartbeat.[FUNC:SyncTask][FILE:direct_hwts_engine.cc][LINE:407]",
            "        rtDeviceSynchronizeWithTimeout execution failed, reason=lost heartbeat[FUNC:FuncErrorReason]",
        ]
    )

    assert errors.error is not None
    assert (errors.error.code, errors.propagated) == ("log-ascend-device", False)


def test_a_trainer_of_paddle_that_is_told_to_end_has_no_fault_of_its_own() -> None:
    """Paddle's handler prints a time that begins with `*** Aborted at` for each signal."""
    errors = first(
        [
            "FatalError: `Termination signal` is detected by the operating system.",
            '  [TimeInfo: *** Aborted at 1633002893 (unix time) try "date -d @1633002893" if you are using GNU date ***]',
            "  [SignalInfo: *** SIGTERM (@0x1) received by PID 4711 (TID 0x7f) from PID 1 ***]",
        ]
    )

    assert errors.error is not None
    assert (errors.error.code, errors.propagated) == ("log-told-to-end", True)


def test_memory_that_hami_refuses_blames_the_program_only_if_the_program_fails() -> None:
    """Project-HAMi/HAMi issue 1003. PyTorch and Paddle free their caches and try again."""
    refused = "[HAMI-core ERROR (pid:25 thread=1 allocator.c:53)]: Device 0 OOM 27147995136 / 25757220864"

    assert code([refused]) == "log-vgpu-oom"
    assert code([refused, *OWN]) == "log-traceback"
    assert (
        code([refused, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"])
        == "log-cuda-oom"
    )
    assert code([refused, "ncclRemoteError: remote process exited"]) == "log-nccl-remote"


# github.com/NVIDIA/nccl issue 1485, github.com/NVIDIA/Fuser issue 2497; TensorFlow on a machine without a driver
@pytest.mark.parametrize(
    "line",
    [
        "[32707] include/alloc.h:243 NCCL WARN Cuda failure 'driver shutting down'",
        "terminating watchdog. (Watchdog caught exception: CUDA error: driver shutting down",
        "cuda_platform.cc:51] failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)",
    ],
)
def test_what_cuda_says_of_a_program_that_ends_or_needs_no_device_is_no_error(line: str) -> None:
    assert first([line]).error is None
    assert code([line, *OWN]) == code(OWN)
