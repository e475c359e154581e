"""Rekindle leaves alone a healthy job of transformers' Trainer with DeepSpeed and a hang limit of 60 s, on
real nodes.

REKINDLE_HEALTHY_S sets how many seconds are watched (default 240). Each save and each evaluation pauses the
steps, and the progress bar of the Trainer is in a line that the container runtime keeps back until the next
evaluation. Then one rank stops, and the limit must apply.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from detectors.sources.cri import Joiner, parse_line
from tests.cluster.cases import until
from tests.cluster.cluster import Cluster
from tests.cluster.faults.gang import lay_names
from tests.cluster.faults.processes import signal
from tests.cluster.gangs import NAMESPACE, lay_storage
from tests.cluster.install import listed
from tests.cluster.installed.deepspeed_gang import Event, Gang, create
from tests.detectors.folds.folding import pod

pytestmark = [pytest.mark.real_nodes, pytest.mark.on_request("REKINDLE_DEEPSPEED")]

HEALTHY_S = float(os.environ.get("REKINDLE_HEALTHY_S", "240"))
LOOK_S = 5.0
FIRST_SAVE_S = 660.0
"""Time in seconds within which a NodeHealth reports that the log shows complete checkpoints. Without an edge
the NodeHealth reports no step otherwise."""
LIMIT_S = 60.0
POLLING_S = 20.0
"""Additional time in seconds until a hang is found: the agent reads the last sign of life before the rank
stops, and agents and controller need some seconds."""
STARTED_S = RECOVERED_S = 420.0
SAVE_EVERY, SAVE_S = 30, 40
GANG = Gang(
    "deepspeed",
    f"{LIMIT_S:g}s",
    (
        "--info",
        "--deepspeed",
        "--resume-if-any",
        "--steps=100000",
        "--step-s=2",
        "--log-every=5",
        f"--save-every={SAVE_EVERY}",
        f"--save-s={SAVE_S}",
        "--keep=3",
    ),
    environment={"PYTHONUNBUFFERED": "1"},
)
LINE_BYTES_MAX = 16 * 1024


class Told(msgspec.Struct, frozen=True):
    """Progress of one rank, in its node's NodeHealth."""

    edge: str
    step: int
    at: datetime


@pytest.fixture
def gang(cluster: Cluster) -> Iterator[Gang]:
    lay_storage(cluster)
    lay_names(cluster)
    create(cluster, GANG)
    yield GANG
    cluster.kubectl("delete", "job", GANG.name, f"--namespace={NAMESPACE}")


def test_a_healthy_deepspeed_job_is_left_alone_and_a_rank_that_stops_is_found(
    cluster: Cluster, gang: Gang
) -> None:
    until("the first steps that are told", lambda: bool(told(cluster)), STARTED_S)
    first = ranks(cluster)
    assert len(first) == gang.ranks

    heard = left_alone(cluster, first, HEALTHY_S)
    compare(cluster, gang, first, heard)
    hang(cluster, gang, first)


def left_alone(cluster: Cluster, first: list[Any], seconds: float) -> list[Told]:
    """Asserts that Rekindle leaves the gang alone. Returns what the NodeHealths reported about its steps
    meanwhile."""
    heard: list[Told] = []
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        assert judged(cluster) == [], heard
        assert standing(ranks(cluster)) == standing(first), heard
        heard += [one for one in told(cluster) if one not in heard]
        time.sleep(LOOK_S)
    return heard


def compare(cluster: Cluster, gang: Gang, first: list[Any], heard: list[Told]) -> None:
    """Compares the reports with the trainer's own state."""
    truth = gang.truth(0)
    steps = [event for event in truth if event.what == "step"]
    minutes = (steps[-1].at - steps[0].at).total_seconds() / 60
    paused_s = max((after.at - before.at).total_seconds() for before, after in pairwise(steps))
    saves = at_saves(cluster, first[0], truth)
    print(f"\n{steps[-1].step} steps in {minutes:.1f} min, the longest pause between two {paused_s:.1f} s")
    print(f"  steps at the {len(saves)} saves, as read and as made: {saves}")
    print(f"  in the NodeHealth: {', '.join(f'{one.step} {one.edge} at {one.at:%T}' for one in heard)}")
    assert paused_s > SAVE_S
    assert saves
    assert [read for read, _ in saves] == [made for _, made in saves]
    assert len(heard) >= (2 if HEALTHY_S > FIRST_SAVE_S else 1)
    assert [one.edge for one in heard] == ["stepping"] * len(heard)
    assert [one.step for one in heard] == sorted({one.step for one in heard})
    assert [one.step for one in heard] == [trained_at(truth, one.at) for one in heard]


def hang(cluster: Cluster, gang: Gang, first: list[Any]) -> None:
    """Stops one rank and asserts that Rekindle finds the hang. The rank that stops prints no steps: the other
    rank waits for it."""
    signal(cluster, first[1], "STOP")
    found_s = until("the hang", lambda: bool(judged(cluster)), LIMIT_S + POLLING_S)
    print(f"  one rank stopped: judged after {found_s:.1f} s")
    ended_s = until("the recovery's end", lambda: phase(cluster) in ("Succeeded", "Failed"), RECOVERED_S)
    (incident,) = (body for body in judged(cluster) if body["kind"] == "Incident")
    (recovery,) = (body for body in judged(cluster) if body["kind"] == "Recovery")
    status = recovery["status"]
    print(f"  {incident['status']['summary']}")
    print(f"  {ended_s:.1f} s later: {status.get('message', status['phase'])}")
    assert incident["spec"]["fault"] == "hang"
    assert status["phase"] == "Succeeded"
    (choosing,) = (datetime.fromisoformat(p["at"]) for p in status["phases"] if p["phase"] == "Choosing")
    whole = [event.step for event in gang.truth(0) if event.what == "saved" and event.at < choosing]
    # safetensors writes weights that only their owner may read: if the scan cannot read them, the Trainer
    # decides.
    assert status.get("checkpoint", {}).get("step", whole[-1]) == whole[-1]
    assert status["resumedStep"] == whole[-1] + 1


def ranks(cluster: Cluster) -> list[Any]:
    pods = listed(cluster, "pods", f"--selector=batch.kubernetes.io/job-name={GANG.name}")
    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


def standing(pods: list[Any]) -> list[tuple[str, str, list[int]]]:
    return [
        (
            body["metadata"]["uid"],
            body["status"]["phase"],
            [status["restartCount"] for status in body["status"]["containerStatuses"]],
        )
        for body in pods
    ]


def judged(cluster: Cluster) -> list[Any]:
    """Returns every Incident and Recovery that concerns the job."""
    found = listed(cluster, "incidents.rekindle.dev,recoveries.rekindle.dev")
    return [body for body in found if GANG.name in str((body["spec"], body.get("status")))]


def phase(cluster: Cluster) -> str:
    phases = [body["status"].get("phase") for body in judged(cluster) if body["kind"] == "Recovery"]
    return str(phases[0]) if phases else ""


def told(cluster: Cluster) -> list[Told]:
    healths = listed(cluster, "nodehealths.rekindle.dev")
    pods = [body for health in healths for body in health.get("status", {}).get("pods", [])]
    return [
        Told(body["edge"], body["lastStep"], datetime.fromisoformat(body["lastStepAt"]))
        for body in pods
        if body["name"].startswith(f"{GANG.name}-") and "firstStep" in body
    ]


def trained_at(truth: list[Event], at: datetime) -> int:
    return max((event.step for event in truth if event.what == "step" and event.at <= at), default=0)


def at_saves(cluster: Cluster, body: Any, truth: list[Event]) -> list[tuple[int | None, int]]:
    """Returns for each save the step that the agent's own code reads in the log on the node, and the
    trainer's own step."""
    fold, joiner = pod(), Joiner(LINE_BYTES_MAX)
    parsed = [line for text in node_log(cluster, body) if (line := parse_line(text)) is not None]
    seen: list[tuple[int | None, int]] = []
    for event in (event for event in truth if event.what == "saved"):
        while parsed and parsed[0].at <= event.at:
            line = parsed.pop(0)
            fold.line(joiner.add(line) or "", line.at)
        seen.append((fold.progress.last_step, event.step))
    return seen


def node_log(cluster: Cluster, body: Any) -> list[bytes]:
    """Returns the lines of the pod's log as the container runtime wrote them."""
    meta, node = body["metadata"], cluster.nodes[body["spec"]["nodeName"]]
    folder = node.folder / "var-log" / "pods" / f"{meta['namespace']}_{meta['name']}_{meta['uid']}" / "train"
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    return [line for path in files for line in path.read_bytes().split(b"\n") if line]
