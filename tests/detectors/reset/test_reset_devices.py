"""`rekindle reset-devices` on a node whose files, processes and nvidia-smi are made by the test."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from detectors.reset.command import run
from detectors.validation.kernel_log import reset_line
from detectors.wire.step_report import Check, Outcome, decode

CHROOT = '#!/bin/sh\nroot=$1; program=$2; shift 2\nexec "$root$program" "$@"\n'
SMI = """#!/bin/sh
echo "$@" >> {state}/calls
case "$*" in
*mig.mode.current*) cat {state}/mig ;;
*query-gpu=persistence_mode*) cat {state}/persistence ;;
*--gpu-reset*) cat {state}/said; exit $(cat {state}/status) ;;
esac
"""
IN_USE = """\
The following GPUs could not be reset:
  GPU 00000000:38:00.0: In use by another client

1 device is currently being used by one or more other processes (e.g. Fabric Manager, CUDA application)."""


class NodeFiles:
    def __init__(self, root: Path, state: Path) -> None:
        self.root = root
        self.state = state
        state.mkdir()
        self.answers(mig="[N/A]", persistence="Disabled", said="All done.", status="0")
        for minor, (pci, uuid) in enumerate((("0000:38:00.0", "GPU-38"), ("0000:39:00.0", "GPU-39"))):
            folder = root / "proc/driver/nvidia/gpus" / pci
            folder.mkdir(parents=True)
            (folder / "information").write_text(f"GPU UUID: {uuid}\nDevice Minor: {minor}\n")

    def nvidia_smi(self, at: str) -> None:
        file = self.root / at
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SMI.format(state=self.state))
        file.chmod(0o755)

    def answers(self, **words: str) -> None:
        for name, text in words.items():
            (self.state / name).write_text(text + "\n")

    def process(self, pid: int, program: str, *files: str) -> None:
        folder = self.root / f"proc/{pid}/fd"
        folder.mkdir(parents=True)
        for number, file in enumerate(files):
            (folder / str(number)).symlink_to(file)
        (folder.parent / "cmdline").write_bytes(program.encode() + b"\0--an-option\0")

    @property
    def calls(self) -> list[str]:
        file = self.state / "calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeFiles]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/chroot").write_text(CHROOT)
    (tmp_path / "bin/chroot").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("REKINDLE_DEVICES", raising=False)
    (tmp_path / "termination-log").touch()
    files = NodeFiles(tmp_path / "host", tmp_path / "state")
    files.nvidia_smi("usr/bin/nvidia-smi")
    before = signal.getsignal(signal.SIGTERM)
    yield files
    signal.signal(signal.SIGTERM, before)


def reset(node: NodeFiles, *given: str) -> int:
    message = node.state.parent / "termination-log"
    return run([f"--host-root={node.root}", f"--termination-log={message}", "--wait-s=0", *given])


def left(node: NodeFiles) -> Check:
    (check,) = decode((node.state.parent / "termination-log").read_text(), where="the pod").checks
    return check


def test_the_named_gpus_are_reset_in_one_command(node: NodeFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    node.answers(said="GPU 00000000:38:00.0 was successfully reset.\nAll done.")
    monkeypatch.setenv("REKINDLE_DEVICES", "GPU-38,GPU-39")

    assert reset(node) == 0

    assert node.calls[-1] == "--gpu-reset -i GPU-38,GPU-39"
    assert left(node) == Check(
        "reset", Outcome.PASSED, "GPU 00000000:38:00.0 was successfully reset. All done."
    )


@pytest.mark.parametrize("named", [[], ["--devices=GPU-38"]])
def test_where_the_driver_shows_no_gpu_nothing_is_reset_and_the_kernel_log_is_told_nothing(
    node: NodeFiles, named: list[str]
) -> None:
    """A program that ends with success has not reset a GPU that does not exist."""
    shutil.rmtree(node.root / "proc/driver")
    (node.root / "dev").mkdir()
    (node.root / "dev/kmsg").touch()

    assert reset(node, *named) == 1

    assert node.calls == []
    assert (node.root / "dev/kmsg").read_text() == ""
    assert left(node).outcome is Outcome.FAILED
    assert "proc/driver/nvidia/gpus" in left(node).message


def test_without_names_all_of_the_node_is_reset(node: NodeFiles) -> None:
    assert reset(node) == 0

    assert node.calls[-1] == "--gpu-reset"


def test_a_gpu_in_use_is_not_reset_and_its_user_is_named(node: NodeFiles) -> None:
    node.process(4711, "/usr/bin/dcgm-exporter", "/dev/nvidiactl", "/dev/nvidia0")

    assert reset(node, "--devices=GPU-38") == 1

    assert left(node).outcome is Outcome.FAILED
    assert all(name in left(node).message for name in ("0 s", "/dev/nvidia0", "dcgm-exporter", "4711"))
    assert "nvidiactl" not in left(node).message
    assert not any("--gpu-reset" in call for call in node.calls)


def test_users_of_other_gpus_and_of_the_control_device_do_not_stand_in_the_way(node: NodeFiles) -> None:
    node.process(4711, "python3", "/dev/nvidia1", "/dev/nvidia-uvm")
    node.process(4712, "nvidia-smi", "/dev/nvidiactl", "/dev/null")

    assert reset(node, "--devices=GPU-38") == 0
    assert reset(node) == 1, "all GPUs of the node are meant"


def test_the_drivers_own_daemons_do_not_stand_in_the_way(node: NodeFiles) -> None:
    node.process(800, "/usr/bin/nvidia-persistenced", "/dev/nvidia0")
    node.process(801, "/usr/bin/nv-fabricmanager", "/dev/nvidia0")

    assert reset(node, "--devices=GPU-38") == 0


def test_a_process_that_ends_while_it_is_looked_at_is_no_error(node: NodeFiles) -> None:
    (node.root / "proc/900").mkdir()
    (node.root / "proc/self").mkdir()

    assert reset(node, "--devices=GPU-38") == 0


def test_persistence_mode_is_off_during_the_reset_and_on_again_after_it(node: NodeFiles) -> None:
    node.answers(persistence="Enabled")

    assert reset(node, "--devices=GPU-38") == 0

    assert [call for call in node.calls if "query" not in call] == [
        "-i GPU-38 -pm 0",
        "--gpu-reset -i GPU-38",
        "-i GPU-38 -pm 1",
    ]


def test_persistence_mode_is_on_again_also_where_the_reset_was_refused(node: NodeFiles) -> None:
    node.answers(persistence="Enabled", said=IN_USE, status="255")

    assert reset(node, "--devices=GPU-38") == 1

    assert node.calls[-1] == "-i GPU-38 -pm 1"
    assert "255" in left(node).message
    assert "In use by another client" in left(node).message


def test_a_gpu_in_mig_mode_is_not_reset(node: NodeFiles) -> None:
    node.answers(mig="Enabled")

    assert reset(node, "--devices=GPU-38") == 1

    assert left(node).outcome is Outcome.FAILED
    assert "GPU-38" in left(node).message
    assert "MIG" in left(node).message
    assert not any("--gpu-reset" in call for call in node.calls)


def test_the_driver_containers_nvidia_smi_is_taken_before_the_nodes_own(node: NodeFiles) -> None:
    node.nvidia_smi("run/nvidia/driver/usr/bin/nvidia-smi")
    (node.root / "usr/bin/nvidia-smi").write_text("#!/bin/sh\nexit 9\n")

    assert reset(node) == 0


def test_another_place_of_nvidia_smi_is_given_as_on_the_node(node: NodeFiles) -> None:
    (node.root / "usr/bin/nvidia-smi").unlink()
    assert reset(node) == 1
    assert "usr/bin/nvidia-smi" in left(node).message

    node.nvidia_smi("home/kubernetes/bin/nvidia/bin/nvidia-smi")
    assert reset(node, "--nvidia-smi=/home/kubernetes/bin/nvidia/bin/nvidia-smi") == 0


def test_a_kernel_log_that_is_no_device_is_left_alone(node: NodeFiles) -> None:
    (node.root / "dev").mkdir()
    (node.root / "dev/kmsg").write_text("4,0,1,-;usb 1-1: new device\n")

    assert reset(node) == 0

    assert (node.root / "dev/kmsg").read_text() == "4,0,1,-;usb 1-1: new device\n"


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("--devices=0,1", ("--devices", "'0'")),
        ("--devices=MIG-1", ("--devices", "'MIG-1'")),
        ("--wait-s=-1", ("--wait-s", "3600")),
        ("--wait-s=nan", ("--wait-s", "3600")),
    ],
)
def test_a_wrong_call_resets_nothing(
    node: NodeFiles, capsys: pytest.CaptureFixture[str], given: str, names: tuple[str, ...]
) -> None:
    assert reset(node, given) == 2

    said = capsys.readouterr().err
    assert all(name in said for name in names), said
    assert node.calls == []


def test_a_reset_that_never_returns_is_given_up(node: NodeFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    (node.root / "usr/bin/nvidia-smi").write_text("#!/bin/sh\necho begun; sleep 600\n")
    monkeypatch.setattr("detectors.reset.smi._ASK_S", 0.5)
    monkeypatch.setattr("detectors.reset.command._RESET_S", 0.5)

    assert reset(node, "--devices=GPU-38") == 1

    assert left(node).outcome is Outcome.FAILED
    assert all(name in left(node).message for name in ("--gpu-reset", "GPU-38", "0.5 s", "begun"))


def test_a_user_that_leaves_in_time_is_waited_for(node: NodeFiles) -> None:
    node.process(4711, "python3", "/dev/nvidia0")
    leaving = threading.Timer(0.5, shutil.rmtree, [node.root / "proc/4711"])
    leaving.start()

    assert reset(node, "--devices=GPU-38", "--wait-s=60") == 0
    assert leaving.finished.is_set()


def test_the_kernel_log_tells_when_the_reset_was(node: NodeFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal is a character device, like the kernel log."""
    ours, theirs = os.openpty()
    (node.root / "dev").mkdir()
    (node.root / "dev/kmsg").symlink_to(os.ttyname(theirs))
    monkeypatch.setenv("REKINDLE_INCIDENT", "gpu-7-device-reset-1a")
    try:
        assert reset(node, "--devices=GPU-38") == 0

        line = os.read(ours, 1000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert line == reset_line("GPU-38", "gpu-7-device-reset-1a")


def test_the_page_shows_the_line_by_which_a_reset_is_known() -> None:
    page = (Path(__file__).parents[3] / "docs/reset.md").read_text()

    assert f'echo "{reset_line("$REKINDLE_DEVICES", "$REKINDLE_INCIDENT")}" > /dev/kmsg' in page
