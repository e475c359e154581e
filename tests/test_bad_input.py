"""Tests mistakes of people and programs at the places where they occur: in the commands, and in a whole
running system.

Parsers of single inputs (kernel records, log lines, catalogue rows, checkpoints, annotations) have such
cases beside their own tests.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.apiserver.client import Client
from chaos.cli import commands
from chaos.cluster.containers import Exit
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.crashing import CrashPoints
from chaos.simulated.jobs import Job
from detectors.client.credentials import Credentials
from detectors.service.settings import SettingsError
from detectors.wire.resource import Resource
from recover.api import Phase
from recover.k8s.kinds import (
    INCIDENTS,
    NAMESPACES,
    NODEHEALTHS,
    NODES,
    PADDLEJOBS,
    PODS,
    PYTORCHJOBS,
    RECIPES,
    RECOVERIES,
    TFJOBS,
)
from recover.kube.auth import load_credentials
from recover.kube.cluster import ListPage
from recover.model.modes import Mode
from tests.facts import missing

Captured = pytest.CaptureFixture[str]

# --- commands -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "args", "named"),
    [
        (commands.chaos, ["shake"], ("'shake'",)),
        (commands.chaos, ["run"], ("'SCENARIO'",)),
        (commands.chaos, ["run", "nosuch"], ("'nosuch'", "application-xid", "demo")),
        (commands.chaos, ["run", "/none/my.yaml"], ("/none/my.yaml",)),
        (commands.demo, ["please"], ("please",)),
        (commands.demo, ["--repeat", "0"], ("--repeat",)),
        (commands.bench, ["loop", "--kubeconfig", "/none"], ("rekindle bench loop", "kubeconfig /none")),
        (commands.bench, ["gpu"], ("'gpu'", "checkpoints", "footprint", "gang")),
    ],
)
def test_wrong_usage_is_told_on_standard_error_with_exit_status_2(
    command: Callable[[list[str]], int], args: list[str], named: tuple[str, ...], capsys: Captured
) -> None:
    assert command(args) == 2

    out, err = capsys.readouterr()
    assert not missing(" ".join(err.split()), *named)
    assert out == ""


GOOD = """\
name: mine
about: one GPU is lost
faults:
  - when: {step: 30}
    xid: {code: 79, rank: 1}
expect: {recoveries: 1}
"""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (GOOD.replace("about: one", "abuot: one"), ("abuot", "'one GPU is lost'")),
        (GOOD.replace("rank: 1", "rank: two"), ("faults[0].xid.rank", "'two'", "`int`")),
        (GOOD.replace("rank: 1", "rank: 4"), ("faults[0]", "rank 4", 0, 3)),
        (GOOD.replace("code: 79", "code: 0"), ("faults[0].xid.code", 0, "`int` >= 1")),
        (GOOD.replace("xid:", "pod-crash: {rank: 1}\n    xid:"), ("xid", "pod-crash", "log-line")),
        (GOOD.replace("{step: 30}", "{step: 30"), ("YAML", "flow mapping")),
        ("", ("`object`", "`null`")),
        ("\udcff\udcfe", ("UTF-8",)),
    ],
)
def test_a_scenario_that_cannot_be_played_is_named_with_field_and_value(
    text: str, named: tuple[str | int, ...], tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(text.encode(errors="surrogateescape"))

    assert commands.chaos(["run", str(file)]) == 2

    err = capsys.readouterr().err
    assert err.startswith(f"rekindle chaos: {file}: ")
    assert not missing(err, *named)
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[1,", ("YAML",)),
        ("hello", ()),
        ("", ()),
        ("current-context: here\ncontexts: 5\n", ()),
        ("current-context: here\ncontexts: []\n", ("here",)),
        ("\udcff\udcfe", ("'utf-8'",)),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_named(
    text: str, named: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "config"
    file.write_bytes(text.encode(errors="surrogateescape"))

    with pytest.raises(SettingsError) as caught:
        await load_credentials(kubeconfig=str(file))

    assert str(caught.value).startswith(f"kubeconfig {file}: ")
    assert not missing(str(caught.value), *named)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"server": "10.0.0.1:6443"}, "--server '10.0.0.1:6443'"),
        ({"token_file": "/none/token"}, "--token-file /none/token"),
        ({"ca_file": "/none/ca.crt"}, "--ca-file /none/ca.crt"),
        ({"ca_file": __file__}, f"--ca-file {__file__}"),
    ],
)
async def test_an_api_server_that_cannot_be_used_as_it_is_named_is_told(
    arguments: dict[str, str], named: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        await load_credentials(**{"server": "https://10.0.0.1:6443", **arguments})

    assert str(caught.value).startswith(f"{named}: ")


def test_in_a_cluster_of_ipv6_the_address_stands_in_brackets() -> None:
    assert Credentials.in_cluster("fd00:10:96::1", "443").server == "https://[fd00:10:96::1]:443"


def test_a_controller_that_cannot_listen_says_where_and_why_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        args = ["controller", "--server", "http://127.0.0.1:1", "--listen", address]
        ended = subprocess.run(
            [sys.executable, "-m", "detectors.commands.main", *args],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert ended.returncode == 2
    assert not missing(ended.stderr, f"--listen {address}")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("moed = 'recover'", ("moed", "'recover'")),
        ("mode = 'reset'", ("mode", "'reset'", *map(repr, map(str, Mode)))),
        ("[modes.pools]\na100 = 'off'", ("modes.pools[a100]", "'off'", *map(repr, map(str, Mode)))),
        ("[modes.namespaces]\nML = 'observe'", ("modes.namespaces", "{'ML': 'observe'}")),
        ("[budgets]\nbrake_percent = 'few'", ("budgets.brake_percent", "'few'", "`float`")),
        ("[timing]\nsettle_s = -1", ("timing.settle_s", -1, "`float` >= 0.0")),
        ("[timing]\nsettle_s = inf", ("timing.settle_s", "inf", "`float` <= 1000000000.0")),
        ("[timing", ("TOML",)),
    ],
)
def test_the_controller_does_not_start_with_settings_that_it_cannot_use(
    settings: str, named: tuple[str | int, ...], tmp_path: Path
) -> None:
    file = tmp_path / "rekindle.toml"
    file.write_text(settings)

    ended = _rekindle("controller", "--settings", str(file))

    assert ended.returncode == 2
    assert ended.stderr.startswith(f"rekindle controller: {file}: ")
    assert not missing(ended.stderr, *named)
    assert ended.stderr.count("\n") == 1


def test_ctrl_c_while_a_command_is_loaded_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
    )

    ended = _rekindle("demo", PYTHONPATH=str(tmp_path))

    assert (ended.returncode, ended.stderr) == (130, "")


def _rekindle(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "detectors.commands.main", *args],
        cwd=Path(__file__).parents[1],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# --- objects in the cluster ---------------------------------------------------------------------------------

_META = {"name": "odd", "uid": "odd-uid", "resourceVersion": "1"}
_IN_TEAM = {**_META, "namespace": "ml"}
ODD: dict[Resource, list[object]] = {
    NODES: [{"metadata": _META, "spec": {"taints": "all"}}],
    PODS: [{"metadata": _IN_TEAM, "status": {"phase": "Exploded"}}, {"metadata": None}, []],
    NAMESPACES: [{"metadata": {**_META, "labels": ["a"]}}],
    NODEHEALTHS: [{"metadata": _META, "status": {"findings": [{"code": 79}]}}, {"spec": "?"}],
    INCIDENTS: [{"metadata": _META, "spec": {"fault": "gremlins", "detectedAt": "yesterday"}}, "text"],
    RECOVERIES: [{"metadata": _IN_TEAM, "spec": {}, "status": {"phase": "Hoping"}}],
    RECIPES: [{"metadata": _META, "status": {"conditions": "none"}}, {"metadata": []}],
    PYTORCHJOBS: [{"metadata": _IN_TEAM, "spec": {"pytorchReplicaSpecs": "three"}}, 5],
    PADDLEJOBS: [{"metadata": _IN_TEAM, "spec": {"paddleReplicaSpecs": {"Worker": 3}}}, {"spec": {}}],
    TFJOBS: [{"metadata": _IN_TEAM, "spec": {"tfReplicaSpecs": ["Worker"]}}, {"spec": None}],
}
"""Kind -> content that another version of the object or of its schema might have, and values that
are no object at all."""


class _OddLists(CrashPoints):
    """Lets each list of all objects of a kind begin with some objects that nobody can read."""

    def __init__(self, client: Client, kill: Callable[[], None]) -> None:
        super().__init__(client, kill)
        self.served: set[Resource] = set()

    async def list(self, resource: Resource, *, labels: str = "", page: str = "", **asked: Any) -> ListPage:
        answer = await super().list(resource, labels=labels, page=page, **asked)
        if page or labels or resource not in ODD:
            return answer
        self.served.add(resource)
        odd = [msgspec.Raw(msgspec.json.encode(body)) for body in ODD[resource]]
        return msgspec.structs.replace(answer, items=[*odd, *answer.items])


def test_objects_that_cannot_be_read_keep_no_other_from_being_recovered() -> None:
    async def story(sim: Simulation) -> None:
        sim.kill_controller()
        sim.crashes = odd_lists = _OddLists(sim.client, sim.kill_controller)
        await sim.start_controller()
        await sim.submit(Job(scanned=False))
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=60)
        assert sim.cordoned() == ["n2"]
        assert odd_lists.served == ODD.keys()
        await comes_to_rest(sim)

    play(story)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("checkpoint", "../../etc"),
        ("checkpoint", "/ckpt;format=zip"),
        ("step-template", "{step} {step} {step}"),
        ("step-template", "\N{SNOWMAN}" * 500),
        ("hang-timeout", "9" * 400 + "s"),
        ("attempts-per-cause", "0x3"),
        ("max-recoveries", "-5"),
    ],
)
def test_a_job_whose_annotation_cannot_be_used_is_recovered_by_the_defaults(name: str, value: str) -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job(scanned=False))
        await sim.person.edit_job({"metadata": {"annotations": {f"rekindle.dev/{name}": value}}})
        await sim.passes(65)
        sim.crash_rank(1, Exit(code=1))
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)
        assert sim.cordoned() == []

    play(story)


def test_an_unusable_checkpoint_annotation_is_told_in_the_recovery() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job(scanned=False))
        await sim.person.edit_job({"metadata": {"annotations": {"rekindle.dev/checkpoint": "ckpt"}}})
        await sim.passes(65)
        sim.crash_rank(1, Exit(code=1))
        await sim.until(lambda: sim.recovery_is(Phase.SUCCEEDED), within_s=120)
        choice = sim.recovery().status.checkpoint
        assert choice is not None
        assert not choice.verified
        assert not missing(choice.reason, "rekindle.dev/checkpoint", "'ckpt'")

    play(story)
