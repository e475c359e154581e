"""Tests chaos/cluster/host.py."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from chaos.cluster.host import Host


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "ml", "name": name, "uid": f"uid-of-{name}"}}


def test_the_files_of_other_pods_stay_when_a_pod_is_forgotten(
    tmp_path: Path, now: Callable[[], datetime]
) -> None:
    """The agent reports that a pod has ended when the cgroup of the pod is gone."""
    host = Host(tmp_path, "n1", 1, now)
    host.boot("boot-1")
    for name in ("one", "two"):
        host.cgroup(f"uid-of-{name}", "main").mkdir(parents=True)
        host.log_folder(pod(name)).mkdir(parents=True)

    host.forget(pod("one"))

    assert not host.cgroup("uid-of-one", "").exists()
    assert not host.log_folder(pod("one")).exists()
    assert host.cgroup("uid-of-two", "main").is_dir()
    assert host.log_folder(pod("two")).is_dir()
