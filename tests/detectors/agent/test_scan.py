"""`rekindle agent scan` prints one report; the tests check its exit status and its JSON."""

# ruff: noqa: E501  the lines of logs are kept whole

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from detectors.agent.command import run
from detectors.commands.exit_status import Exit
from tests.detectors.sources.nvml_standin import Gpus, pci_of, uuid_of

XID_79 = "[ 5000.1] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
XID_94 = "[ 5000.1] NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
INIT = "[ 5000.1] NVRM: GPU 0000:09:00.0: RmInitAdapter failed! (0x22:0x56:894)"
LOCKUP = "[ 5000.1] watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]"


def scan(tmp_path: Path, *lines: str, flags: tuple[str, ...] = ()) -> int:
    log = tmp_path / "dmesg.txt"
    log.write_text("\n".join(lines))
    return run(["scan", "--replay", str(log), *flags])


def as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], *lines: str) -> dict[str, Any]:
    scan(tmp_path, *lines, flags=("--json",))
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("[    0.000000] Linux version 6.8.0",), 0),
        ((LOCKUP,), 0),
        ((INIT, LOCKUP), 5),
        ((XID_94, INIT), 4),
        ((LOCKUP, XID_79, XID_94), 1),
    ],
)
def test_the_exit_status_tells_the_worst_finding(tmp_path: Path, lines: tuple[str, ...], status: int) -> None:
    assert scan(tmp_path, *lines) == status


def test_a_finding_in_json_has_all_that_a_script_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = as_json(tmp_path, capsys, XID_94, XID_94.replace("5000.1", "5003.1"))

    (finding,) = report["findings"]
    assert finding == {
        "code": "xid-94",
        "fault": "memory-degraded",
        "severity": "pending",
        "origin": "kernel",
        "action": "restart-application",
        "subject": {
            "kind": "device",
            "pci": "0000:01:00",
            "uuid": "",
            "gpu_instance": 5,
            "pod": "",
            "volume": "",
        },
        "count": 2,
        "first_at": "1970-01-01T01:23:20.100000Z",
        "last_at": "1970-01-01T01:23:23.100000Z",
        "evidence": XID_94.partition("] ")[2],
        "caused_by": "",
    }
    assert report["sources"] == [
        {"source": "kmsg", "state": "covered", "why": "", "records": 2, "devices": None, "volumes": None}
    ]


def test_what_followed_from_a_fault_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = [
        f"[ 5000.{n}] NVRM: Xid (PCI:0000:38:00): {rest}"
        for n, rest in enumerate(
            [
                "48, An uncorrectable double bit error (DBE) has been detected on GPU",
                "63, pid=1, name=python, Row Remapper: New row (0x0000000e9b9107e0) marked for remapping",
                "45, pid=1, name=python3, Ch 00000001 caused by previous Xid 48",
            ]
        )
    ]

    found = as_json(tmp_path, capsys, *chain)["findings"]

    assert [(f["code"], f["caused_by"]) for f in found] == [
        ("xid-48", ""),
        ("xid-63", "xid-48"),
        ("xid-45", "xid-48"),
    ]


def test_notes_are_shown_on_request_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scan(tmp_path, LOCKUP)
    assert "soft-lockup" not in capsys.readouterr().out

    scan(tmp_path, LOCKUP, flags=("--all",))
    assert "soft-lockup" in capsys.readouterr().out


def piped(data: bytes) -> subprocess.CompletedProcess[bytes]:
    program = "import sys; from detectors.agent.command import run; sys.exit(run(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, "scan", "--replay", "-", "--json"],
        input=data,
        capture_output=True,
        env={"PYTHONIOENCODING": "utf-8:strict"},
        check=False,
    )


@pytest.mark.parametrize(
    "data",
    [
        XID_79.encode(),
        b"\xef\xbb\xbf" + XID_79.encode(),
        XID_79.encode("utf-16"),
        XID_79.replace("GPU has", "name=\udce8, GPU has").encode("utf-8", "surrogateescape"),
    ],
    ids=["UTF-8", "with its mark", "UTF-16", "a name that is cut within a letter"],
)
def test_a_log_comes_by_standard_input_as_well(data: bytes) -> None:
    answered = piped(data)

    assert (answered.returncode, answered.stderr) == (1, b"")
    assert json.loads(answered.stdout)["findings"][0]["code"] == "xid-79"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"bread\nmilk\n",
        gzip.compress(XID_79.encode()),
        b"\xfd7zXZ\0\0\x04\n{\x8a\x02\n",
        b"INFO: step 1\n{ x\n",
        json.dumps({"dmesg": [{"pri": 3, "msg": XID_79}]}).encode(),
    ],
    ids=["nothing", "another text", "gzip", "xz", "a program's log", "another JSON"],
)
def test_what_is_no_kernel_log_gives_no_answer(tmp_path: Path, data: bytes) -> None:
    """A report without findings would wrongly say that the node is healthy."""
    file = tmp_path / "log"
    file.write_bytes(data)

    assert run(["scan", "--replay", str(file)]) == 3


def test_lines_of_drivers_that_are_not_read_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scan(tmp_path, "[    0.000000] Linux version 6.8.0", f"12:{XID_79}", f"host kern.err kernel: {XID_79}")

    assert "kmsg: 3 records; 2 lines were not read" in capsys.readouterr().out


def test_a_log_without_times_tells_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`journalctl -o cat` prints a log without times."""
    scan(tmp_path, XID_79.removeprefix("[ 5000.1] "))

    assert "time unknown  NVRM: Xid" in capsys.readouterr().out


def test_the_evidence_is_the_gravest_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = [
        f"[ {at}.0] nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, {word}, Link 28 x"
        for at, word in ((10, "Non-fatal"), (20, "Fatal"))
    ]

    (finding,) = as_json(tmp_path, capsys, *said)["findings"]

    assert (finding["severity"], finding["count"]) == ("fatal", 2)
    assert ", Fatal, " in finding["evidence"]
    assert finding["first_at"].endswith(":10Z")


@pytest.mark.parametrize(
    "args",
    [
        ["--replay", "/no/such/file"],
        ["--replay", "/"],
        ["--set", "nvml.colour=1"],
        ["--replay", "a", "--replay", "b"],
        ["--replay", ""],
    ],
)
def test_what_cannot_be_read_is_named(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scan", *args]) == 2

    assert args[1].partition("=")[0] in capsys.readouterr().err


def test_the_log_of_this_node_is_read_with_its_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/uptime").write_text("5000.00 1.0\n")
    (tmp_path / "sys/bus/pci/devices/0000:3b:00.0").mkdir(parents=True)
    other = "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus."
    here = other.replace(":41:", ":3b:")
    (tmp_path / "dev/kmsg").write_text(
        f"3,1,5000000,-;{other}\n3,2,6000000,-;{here}\n11,3,7000000,-;{other}\n"
    )

    status = run(["scan", "--host-root", str(tmp_path), "--json", "--set", "nvml.enabled=false"])

    report = json.loads(capsys.readouterr().out)
    assert (status, [f["subject"]["pci"] for f in report["findings"]]) == (1, ["0000:3b:00"])
    assert [(s["source"], s["state"]) for s in report["sources"]] == [
        ("kmsg", "covered"),
        ("nvml", "blind"),
        ("volumes", "blind"),
        ("host", "covered"),
    ]


def test_a_node_without_a_kernel_log_gives_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scan", "--host-root", str(tmp_path), "--set", "nvml.enabled=false"]) == 3

    assert f"{tmp_path}/dev/kmsg" in capsys.readouterr().err


def of_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    """Returns exit status and JSON report of a node with an empty kernel log."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text("")
    status = run(["scan", "--host-root", str(tmp_path), "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_what_nvml_says_now_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpus = Gpus(tmp_path, monkeypatch, count=2)
    gpus.answer(1, rows_failed=1, pcie_width=8)

    status, report = of_node(tmp_path, capsys)

    assert status == Exit.DEGRADED
    told = {finding["code"]: finding for finding in report["findings"]}
    assert told.keys() == {"nvml-row-remap-failed", "nvml-pcie-width"}
    assert told["nvml-row-remap-failed"]["subject"] == {
        "kind": "device",
        "pci": pci_of(1),
        "uuid": uuid_of(1),
        "gpu_instance": None,
        "pod": "",
        "volume": "",
    }


@pytest.mark.parametrize(("error", "status"), [(0, Exit.GOOD), (15, Exit.BAD), (999, Exit.SUSPECT)])
def test_a_gpu_without_a_handle_decides_the_exit_status(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: int,
    status: Exit,
) -> None:
    Gpus(tmp_path, monkeypatch, count=2).answer(1, handle_error=error)

    assert of_node(tmp_path, capsys)[0] == status


def test_each_finding_is_followed_by_the_meaning_of_its_row_and_a_row_of_the_user_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "own.toml"
    rows.write_text(
        '[[xid]]\ncode = 94\nmnemonic = "X"\nmeaning = "our words for 94"\nfault = "memory-degraded"\n'
        'origin = "kernel"\nseverity = "pending"\nremedy = "none"\nsource = "our runbook"\n'
    )
    unknown = XID_79.replace("79, GPU has fallen off the bus.", "998, nobody knows")

    scan(tmp_path, XID_79, XID_94, INIT, unknown, flags=("--set", f"catalogue.extra={rows}"))

    said = capsys.readouterr().out.splitlines()
    meanings = {
        code: [line for line in said[at:until] if line.strip().startswith("meaning: ")]
        for code, at, until in _parts(said)
    }
    assert meanings["xid-94"] == ["         meaning: our words for 94"]
    assert [len(meanings[code]) for code in ("xid-79", "rm-init-failed", "xid-998")] == [1, 1, 0]


def test_a_bare_line_that_only_a_row_of_the_user_reads_shows_that_the_file_is_a_kernel_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "own.toml"
    rows.write_text(
        '[[storage]]\ncode = "our-array-path-lost"\nmeaning = "A path to our disk array is gone"\n'
        'lines = ["nvme nvme{number}: our-array path {number} lost: {rest}"]\n'
        'examples = ["nvme nvme3: our-array path 1 lost: no response"]\n'
        'fault = "storage"\nseverity = "info"\nsource = "our runbook"\n'
    )
    bare = "nvme nvme3: our-array path 1 lost: no response"

    assert scan(tmp_path, bare) == 3
    assert scan(tmp_path, bare, flags=("--set", f"catalogue.extra={rows}", "--all")) == 0
    assert "our-array-path-lost" in capsys.readouterr().out


def _parts(said: list[str]) -> list[tuple[str, int, int]]:
    """Returns the code of each finding, and the range of its lines."""
    heads = [number for number, line in enumerate(said) if line[:1] not in ("", " ") and "  " in line]
    ends = [*heads[1:], len(said)]
    return [(said[head].split()[1], head, end) for head, end in zip(heads, ends, strict=True)]
