"""`rekindle validate` as a whole: processes, deadlines, its output and its termination message."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from detectors.validation.checks import CHECKS
from detectors.validation.command import run
from detectors.wire.step_report import CHECKS_MAX, Check, Outcome, ValidationReport, decode

LOST = "NVRM: Xid (PCI:0000:38:00): 79, pid=1, name=python3, GPU has fallen off the bus."
COMMAND = "import sys; from detectors.validation.command import run; sys.exit(run(sys.argv[1:]))"
NVML = """
class NVMLError(Exception): value = 999
class Pci: busId = "00000000:38:00.0"
def nvmlSystemGetDriverVersion(): return "595.45.04"
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetPciInfo(handle): return Pci
def nvmlDeviceGetUUID(handle): return "GPU-38"
def nvmlDeviceGetName(handle): return "NVIDIA H100"
def nvmlDeviceGetMaxMigDeviceCount(handle): return 0
def nvmlDeviceGetMemoryInfo(handle): raise NVMLError("Not Supported")
"""


@pytest.fixture(autouse=True)
def _signals_stay_as_they_were() -> object:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Returns the root of a node with one GPU and an empty kernel log."""
    folder = tmp_path / "host/proc/driver/nvidia/gpus/0000:38:00.0"
    folder.mkdir(parents=True)
    (folder / "information").write_text("Model: H100\nGPU UUID: GPU-38\n")
    (tmp_path / "host/dev").mkdir()
    (tmp_path / "host/dev/kmsg").write_text("")
    return tmp_path / "host"


@pytest.fixture
def message(tmp_path: Path) -> Path:
    """Returns the file that the kubelet would create."""
    file = tmp_path / "termination-log"
    file.touch()
    return file


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Returns a function that puts a module with the given name before any real one, in the processes of
    checks."""

    def put(name: str, text: str) -> None:
        (tmp_path / "modules").mkdir(exist_ok=True)
        (tmp_path / "modules" / f"{name}.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'modules'}:{os.getcwd()}")

    return put


def left(message: Path) -> dict[str, Check]:
    return {check.name: check for check in _report(message).checks}


def _report(message: Path) -> ValidationReport:
    return decode(message.read_text(), where="the pod")


def test_the_table_is_printed_and_the_report_is_left(
    root: Path, message: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REKINDLE_EXPECTED_DEVICES", "1")

    status = run([f"--host-root={root}", f"--termination-log={message}"])

    lines = capsys.readouterr().out.splitlines()
    assert status == 0, "what cannot run here has not failed"
    assert [line.split()[0] for line in lines[:-1]] == [check.name for check in CHECKS]
    assert re.findall(r"\d+", lines[-1]) == ["2", "0", "4"], "passed, failed, not run"
    found = left(message)
    assert found["devices"].outcome is found["kernel-log"].outcome is Outcome.PASSED
    assert "1 of 1 GPUs" in found["devices"].message
    for name in ("memory-and-matmul", "nccl-pair", "nccl-loopback"):
        assert found[name].outcome is Outcome.NOT_RUN
        assert "PyTorch" in found[name].message


def test_a_failed_check_is_the_exit_status(root: Path, message: Path) -> None:
    (root / "dev/kmsg").write_text(f"4,0,1,-;{LOST}\n")

    status = run([f"--host-root={root}", f"--termination-log={message}", "--checks=kernel-log"])

    assert status == 1
    assert left(message).keys() == {"kernel-log"}
    assert all(name in left(message)["kernel-log"].message for name in ("xid-79", "GPU-38"))


def test_a_driver_that_hangs_is_a_failed_check_and_no_hanging_pod(
    root: Path, message: Path, module: Callable[[str, str], None]
) -> None:
    module("pynvml", "import time\nNVMLError = OSError\ndef nvmlInit(): time.sleep(600)\n")
    begin_s = time.monotonic()

    given = [f"--host-root={root}", f"--termination-log={message}", "--checks=devices,kernel-log"]
    status = run([*given, "--deadline=devices=2"])

    assert (status, time.monotonic() - begin_s < 60) == (1, True)
    assert left(message)["devices"].outcome is Outcome.FAILED
    assert "2 s" in left(message)["devices"].message
    assert left(message)["kernel-log"].outcome is Outcome.PASSED, "the next check is made all the same"


def test_a_check_that_is_killed_or_breaks_has_failed_with_its_last_words(
    root: Path, message: Path, module: Callable[[str, str], None]
) -> None:
    given = [f"--host-root={root}", f"--termination-log={message}", "--checks=devices"]
    module(
        "pynvml",
        "import os, signal\nNVMLError = OSError\ndef nvmlInit(): os.kill(os.getpid(), signal.SIGSEGV)\n",
    )
    assert run(given) == 1
    assert "SIGSEGV" in left(message)["devices"].message

    module("pynvml", "class NVMLError(Exception): pass\ndef nvmlInit(): raise ValueError('odd')\n")
    assert run(given) == 1
    assert "1: ValueError: odd" in left(message)["devices"].message


def test_what_a_library_prints_does_not_spoil_the_result(
    root: Path, message: Path, module: Callable[[str, str], None]
) -> None:
    module("pynvml", NVML + "def nvmlInit(): print('{}', flush=True); import os; os.write(1, b'hello')\n")

    assert run([f"--host-root={root}", f"--termination-log={message}", "--checks=devices"]) == 0

    assert left(message)["devices"].outcome is Outcome.PASSED
    assert "hello" not in left(message)["devices"].message


def torch_with(*, built: bool, available: bool, count: int) -> str:
    """Returns the source of a PyTorch with the attributes that a check reads before it begins."""
    return f"""
__version__ = "2.13"
class backends:
    class cuda:
        is_built = staticmethod(lambda: {built})
class cuda:
    is_available = staticmethod(lambda: {available})
    device_count = staticmethod(lambda: {count})
"""


@pytest.mark.parametrize(
    ("torch", "says"),
    [
        ("raise OSError('libcudart.so.13: cannot open shared object file')", "libcudart.so.13"),
        (torch_with(built=False, available=False, count=0), "CUDA"),
        (torch_with(built=True, available=False, count=0), "PyTorch 2.13"),
        (torch_with(built=True, available=True, count=1), "one GPU"),
    ],
    ids=["a library is missing", "built without", "no device", "one device"],
)
def test_a_check_that_needs_more_names_what_is_missing(
    root: Path, message: Path, module: Callable[[str, str], None], torch: str, says: str
) -> None:
    module("torch", torch)

    assert run([f"--host-root={root}", f"--termination-log={message}", "--checks=nccl-pair"]) == 0

    check = left(message)["nccl-pair"]
    assert check.outcome is Outcome.NOT_RUN
    assert says in check.message


@pytest.mark.parametrize(
    ("command", "outcome", "says"),
    [
        ("echo 52 GB/s", Outcome.PASSED, "52 GB/s"),
        ("sh -c 'echo slow; exit 1'", Outcome.FAILED, "1: slow"),
        ("sh -c 'echo no InfiniBand here >&2; exit 77'", Outcome.NOT_RUN, "no InfiniBand here"),
        ("sh -c 'kill -9 $$'", Outcome.FAILED, "SIGKILL"),
        ("no-such-program --fast", Outcome.FAILED, "no-such-program"),
        ("false", Outcome.FAILED, "1"),
    ],
)
def test_a_command_of_ones_own_is_a_check(
    root: Path, message: Path, command: str, outcome: Outcome, says: str
) -> None:
    given = [f"--host-root={root}", "--checks=kernel-log", f"--termination-log={message}"]

    run([*given, f"--extra-command=bandwidth={command}"])

    check = left(message)["bandwidth"]
    assert check.outcome is outcome
    assert says in check.message


def test_nothing_that_a_check_has_started_outlives_its_deadline(
    root: Path, message: Path, tmp_path: Path
) -> None:
    begun = tmp_path / "pid"
    command = f"sh -c 'sleep 600 & echo $! > {begun}; echo waiting; wait'"
    given = [f"--host-root={root}", "--checks=kernel-log", f"--termination-log={message}"]

    run([*given, f"--extra-command=own={command}", "--deadline=own=1.5"])

    assert all(name in left(message)["own"].message for name in ("1.5 s", "waiting"))
    sleeper = Path(f"/proc/{int(begun.read_text())}")
    assert _soon(lambda: not sleeper.exists() or "zombie" in (sleeper / "status").read_text())


def test_a_process_that_cannot_be_killed_is_told_and_not_waited_for(
    root: Path, message: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in uninterruptible sleep, for example, has no visible end."""
    started: list[Unkillable] = []

    class Unkillable(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            started.append(self)
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)

    monkeypatch.setattr("detectors.validation.processes.subprocess.Popen", Unkillable)
    given = [f"--host-root={root}", "--checks=devices", f"--termination-log={message}"]

    assert run([*given, "--deadline=devices=3"]) == 1

    monkeypatch.undo()
    subprocess.Popen.wait(started[0])
    assert left(message)["devices"].outcome is Outcome.FAILED
    assert "3 s" in left(message)["devices"].message


def _soon(holds: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + 20
    while time.monotonic() < end_s:
        if holds():
            return True
        time.sleep(0.02)
    return False


def test_if_the_pod_ends_in_a_check_that_check_has_failed(root: Path, message: Path, tmp_path: Path) -> None:
    """The report exists already when the check begins. It names the check as failed, and the checks that were
    not reached as not run."""
    kept = tmp_path / "kept"
    given = [f"--host-root={root}", "--checks=kernel-log", f"--termination-log={message}"]
    given += [f"--extra-command=a=cp {message} {kept}", "--extra-command=b=true"]

    assert run(given) == 0

    found = left(kept)
    assert [check.outcome for check in found.values()] == [Outcome.PASSED, Outcome.FAILED, Outcome.NOT_RUN]
    assert {check.outcome for check in left(message).values()} == {Outcome.PASSED}


def test_told_to_end_it_ends_its_check_with_it(root: Path, message: Path, tmp_path: Path) -> None:
    begun = tmp_path / "pid"
    own = "sh -c " + shlex.quote(f"echo $$ > {begun}; exec sleep 600")
    given = [f"--host-root={root}", "--checks=kernel-log", f"--termination-log={message}"]
    command = [sys.executable, "-c", COMMAND, *given, f"--extra-command=own={own}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert _soon(lambda: begun.exists() and bool(begun.read_text()))
            child.terminate()
            assert child.wait(20) == 128 + signal.SIGTERM
        finally:
            child.kill()

    assert left(message)["own"].outcome is Outcome.FAILED
    sleeper = Path(f"/proc/{int(begun.read_text())}")
    assert _soon(lambda: not sleeper.exists() or "zombie" in (sleeper / "status").read_text())


def test_by_hand_no_file_is_made(root: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "termination-log"

    assert run([f"--host-root={root}", "--checks=kernel-log", f"--termination-log={nowhere}"]) == 0

    assert not nowhere.exists()


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["--checks=devises"], ("--checks", "'devises'", *(check.name for check in CHECKS))),
        (["--expected-devices=eight"], ("--expected-devices", "'eight'", "8")),
        (["--expected-devices=-1"], ("--expected-devices", "'-1'")),
        (["--extra-command=true"], ("--extra-command", "'true'", "NAME=COMMAND")),
        (["--extra-command=a="], ("--extra-command", "'a='", "NAME=COMMAND")),
        (["--extra-command=a='b"], ("--extra-command", '"a=\'b"')),
        (["--extra-command=My Check=true"], ("'My Check'", "63")),
        (["--extra-command=devices=true"], ("--extra-command", "devices")),
        (["--extra-command=a=true"] * 2, ("--extra-command", "'a=true'")),
        ([f"--extra-command=a{n}=true" for n in range(30)], ("36", str(CHECKS_MAX))),
        (["--deadline=devices"], ("--deadline", "'devices'", "NAME=SECONDS")),
        (["--deadline=devices=soon"], ("--deadline", "'devices=soon'", "NAME=SECONDS")),
        (["--deadline=devices=nan"], ("--deadline", "'devices=nan'", "NAME=SECONDS")),
        (["--catalogue=/nowhere.toml"], ("--catalogue", "/nowhere.toml")),
        (["--checks=devices", "--deadline=kernel-log=5"], ("--deadline", "'kernel-log'")),
    ],
)
def test_a_wrong_call_is_refused_and_nothing_is_checked(
    message: Path, capsys: pytest.CaptureFixture[str], given: list[str], names: tuple[str, ...]
) -> None:
    assert run([*given, f"--termination-log={message}"]) == 2

    told = capsys.readouterr()
    assert told.err.startswith("rekindle validate: ")
    assert all(name in told.err for name in names), told.err
    assert told.out == message.read_text() == ""


@pytest.mark.parametrize("text", ["[[xid]]\ncode = 7\n", "[[xid"], ids=["a bad row", "no TOML"])
def test_a_bad_row_of_the_users_catalogue_stops_no_check_and_is_named(
    root: Path, message: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    rows = tmp_path / "rows.toml"
    rows.write_text(text)

    given = [f"--host-root={root}", f"--termination-log={message}", f"--catalogue={rows}"]
    status = run([*given, "--checks=kernel-log"])

    assert status == 0
    assert left(message)["kernel-log"].outcome is Outcome.PASSED
    assert f"{rows}: " in left(message)["kernel-log"].message
    told = capsys.readouterr().err
    assert "--catalogue" in told
    assert f"{rows}: " in told


def test_the_list_tells_what_each_check_proves_and_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--list"]) == 0

    told = capsys.readouterr().out
    for check in CHECKS:
        assert check.name in told
        assert f"{check.deadline_s:g} s" in told
        assert check.proves in told


def test_all_checks_together_end_before_the_step_is_given_up() -> None:
    """The controller waits 30 minutes for a validation, and some of them pass before the pod runs."""
    assert sum(check.deadline_s for check in CHECKS) <= 25 * 60


def test_the_page_tells_of_each_check() -> None:
    page = (Path(__file__).parents[3] / "docs/validation.md").read_text()

    for check in CHECKS:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{check.name}` |")]
        assert row.endswith(f"| {check.deadline_s:g} s |")
