"""Tests the pod templates that a repair uses if the settings name none."""

import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

KINDS = ("reset", "reboot", "validate")


def template(kind: str) -> dict[str, Any]:
    text = (files("recover.repair") / "templates" / f"{kind}.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_asks_the_api_server_nothing_and_runs_once(kind: str) -> None:
    spec = template(kind)["spec"]

    assert spec["automountServiceAccountToken"] is False
    assert spec["restartPolicy"] == "Never"


@pytest.mark.parametrize("kind", KINDS)
def test_the_image_and_the_node_are_left_to_the_controller(kind: str) -> None:
    spec = template(kind)["spec"]
    (container,) = spec["containers"]

    assert "image" not in container
    assert not {"nodeName", "affinity", "tolerations", "nodeSelector"} & spec.keys()
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError", "else a crash says nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_no_step_takes_a_gpu_from_the_device_plugin(kind: str) -> None:
    """The node is quarantined, and the device plugin may not be able to allocate the broken device at all."""
    (container,) = template(kind)["spec"]["containers"]

    assert "nvidia.com/gpu" not in str(container.get("resources"))


@pytest.mark.parametrize("kind", KINDS)
def test_no_step_makes_the_scheduler_evict_pods_of_others_from_a_full_node(kind: str) -> None:
    """The pod has the priority of the node's own services, so the scheduler would evict other pods for
    anything that it requests."""
    spec = template(kind)["spec"]
    (container,) = spec["containers"]

    assert spec["priorityClassName"] == "system-node-critical"
    assert container["resources"]["requests"] == {"cpu": 0, "memory": 0}


def test_only_a_reset_sees_the_nodes_files_and_only_a_validation_may_run_a_gpu() -> None:
    mounts = {
        kind: [
            volume["hostPath"]["path"]
            for volume in template(kind)["spec"].get("volumes", [])
            if "hostPath" in volume
        ]
        for kind in KINDS
    }

    assert mounts["reset"] == ["/"]
    assert mounts["reboot"] == []
    assert mounts["validate"] == ["/dev/kmsg", "/proc/driver", "/sys/bus"]
    hidden = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    for kind in ("reset", "reboot"):
        assert hidden in template(kind)["spec"]["containers"][0]["env"]


@pytest.mark.parametrize("boot_id", ["", "boot-1"])
def test_the_reboot_tells_systemd_and_the_kernel_log_why(tmp_path: Path, boot_id: str) -> None:
    said = rebooted(tmp_path, boot_id)

    why = "Rekindle repairs gpu-7: device-lost, incident gpu-7-device-lost-1a"
    assert said.splitlines() == ["reboot", f"--message={why}"]
    assert (tmp_path / "kmsg").read_text() == f"rekindle: reboot: {why}\n"


def test_a_pod_that_is_started_again_after_the_boot_does_not_reboot_once_more(tmp_path: Path) -> None:
    said = rebooted(tmp_path, "boot-0")

    (line,) = said.splitlines()
    assert "boot-0" in line
    assert line != "reboot"
    assert not (tmp_path / "kmsg").exists()


def rebooted(tmp_path: Path, boot_id: str) -> str:
    """Returns the output of the template's shell script in boot-1, with the node's programs and kernel log
    replaced."""
    (container,) = template("reboot")["spec"]["containers"]
    nsenter, target, mounts, end, shell, flags, script = container["command"]
    assert (nsenter, target, mounts, end) == ("nsenter", "--target=1", "--mount", "--")
    systemctl = tmp_path / "systemctl"
    systemctl.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    systemctl.chmod(0o755)
    (tmp_path / "boot_id").write_text("boot-1\n")
    script = script.replace("/dev/kmsg", str(tmp_path / "kmsg"))
    script = script.replace("/proc/sys/kernel/random/boot_id", str(tmp_path / "boot_id"))
    given = {
        "REKINDLE_NODE": "gpu-7",
        "REKINDLE_FAULT": "device-lost",
        "REKINDLE_INCIDENT": "gpu-7-device-lost-1a",
        "REKINDLE_BOOT_ID": boot_id,
    }

    return subprocess.run(
        [shell, flags, script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"} | given,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_a_reboot_of_nobody_in_particular_is_refused() -> None:
    """Without the variables that the controller sets, the shell ends before it requests anything."""
    (container,) = template("reboot")["spec"]["containers"]

    done = subprocess.run(
        container["command"][4:], env={"PATH": "/nonexistent"}, check=False, capture_output=True
    )

    assert done.returncode != 0
    assert b"REKINDLE_NODE" in done.stderr
