"""`rekindle bench scale`: sizes, figures and table show what was measured, and the world in the process is
complete."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from chaos.apiserver.rest import serve
from chaos.apiserver.store import MemoryCluster
from chaos.bench import BENCHES
from chaos.bench.arguments import access_of, as_arguments
from chaos.bench.scale.command import _parser
from chaos.bench.scale.figures import Figure, Scale, growth, medians, of_times
from chaos.bench.scale.ground import Ground
from chaos.bench.scale.in_process import WOKEN, InProcess
from chaos.bench.scale.size import Size, sizes_of
from chaos.bench.scale.stopwatch import steps_of, timed
from detectors.client.kubeapi import Credentials, KubeApi
from recover.api.crds import manifests
from recover.k8s.kinds import NODES


def test_every_rank_has_room_on_its_node_and_the_free_nodes_have_none() -> None:
    size = Size(nodes=50, pods=1000, ranks=310)
    ranks = [rank for gang in size.gangs() for rank in gang.ranks]

    by_node = {node: sum(r.gpus for r in ranks if r.node == node) for node in size.node_names}

    assert len(ranks) == len({rank.name for rank in ranks}) == 310
    assert max(by_node.values()) <= 8
    assert [node for node, gpus in by_node.items() if not gpus] == size.free_nodes
    assert len(list(size.others())) == 690


def test_one_gang_is_large_where_there_are_ranks_enough() -> None:
    of = [[len(gang.ranks) for gang in Size(10_000, 100_000, ranks).gangs()] for ranks in (20_000, 900, 150)]

    assert of[0] == [2000, *[200] * 90]
    assert of[1] == [450, 200, 200, 50]
    assert of[2] == [150]


def test_smaller_clusters_have_pods_and_ranks_in_proportion() -> None:
    assert sizes_of([100, 1000], None, None) == [Size(100, 1000, 200), Size(1000, 10_000, 2000)]
    assert sizes_of([100, 1000], 5000, 4000) == [Size(100, 500, 400), Size(1000, 5000, 4000)]


def test_growth_is_told_only_of_what_both_sizes_have() -> None:
    one = Figure("sync", "", "s", 2.0)

    assert growth(one, Figure("sync", "", "s", 5.0)) == 2.5
    assert growth(one, None) is None
    assert growth(Figure("storm", "", "nodes", 0.0), one) is None


def test_times_are_told_in_milliseconds_with_their_median_and_99th() -> None:
    found = of_times("cordon", "", [0.01 * number for number in range(1, 101)])

    assert (round(found.value), round(found.p99 or 0), found.rounds) == (500, 990, 100)


def test_the_figures_of_several_runs_are_told_by_their_medians() -> None:
    runs = [
        [Figure("sync", "", "s", value), Figure("cordon", "", "ms", value, 10 * value)]
        for value in (3.0, 1.0, 2.0)
    ]

    found = {figure.name: figure for figure in medians([*runs, [Figure("stall", "", "ms", 7.0)]])}

    assert (found["sync"].value, found["sync"].p99) == (2.0, None)
    assert (found["cordon"].value, found["cordon"].p99) == (2.0, 20.0)
    assert found["stall"].value == 7.0, "only one run had a long turn"


async def test_a_renewed_node_has_its_labels_again() -> None:
    store, size = MemoryCluster(lambda: datetime.now(UTC), seed=1), Size(nodes=50, pods=50, ranks=10)
    for crd in manifests():
        store.add_crd(crd)

    def labels() -> dict[str, dict[str, str]]:
        return {n["metadata"]["name"]: n["metadata"]["labels"] for n in store.objects(NODES)}

    async with serve(store) as server, KubeApi(Credentials(server.url)) as api:
        ground = Ground(api, size)
        await ground.renew(size.node_names)
        before = labels()
        await ground.renew(size.free_nodes[1:])

    assert labels() == before


def test_the_world_in_process_is_the_whole_cluster() -> None:
    made = InProcess(Size(nodes=10, pods=60, ranks=20))
    made.fill()
    world = made.world()

    assert (len(world.nodes), len(world.health), len(world.gangs)) == (10, 10, 1)
    assert all(node.ready and node.is_accelerated for node in world.nodes.values())
    assert sum(len(pods) for pods in world.pods_of.values()) == 20
    assert all(pod.phase == "Running" for pods in world.pods_of.values() for pod in pods.values())


def test_a_healthy_cluster_gives_no_decision_anything_to_write() -> None:
    made = InProcess(Size(nodes=10, pods=60, ranks=20))
    made.fill()

    decisions = made.decisions()

    plans = [decisions[name](made.world(), made.now) for name in WOKEN]
    assert [getattr(plan, "chains") for plan in plans] == [()] * len(WOKEN)  # noqa: B009  (each is a Plan)


def test_figures_in_process_come_for_each_size_as_json_and_as_a_whole_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = ["--in-process", "--sizes", "5,10", "--rounds", "2"]

    assert BENCHES["scale"].run([*args, "-o", "json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=Scale)
    assert BENCHES["scale"].run(args) == 0
    table = capsys.readouterr().out

    assert [at.size.nodes for at in found.sizes] == [5, 10]
    assert {f.name for f in found.sizes[0].figures} == {f.name for f in found.sizes[1].figures}
    assert {f.name for f in found.sizes[1].figures} >= {"absorb", "wake", "look triage", "look gauges"}
    assert all(figure.value > 0 for at in found.sizes for figure in at.figures)
    assert "grows" in table
    assert "…" not in table
    for figure in found.sizes[1].figures:
        assert figure.words.strip() in table


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--sizes", "100,50"], "100,50: expected rising numbers of nodes"),
        (["--nodes", "4"], "4: expected a number, 5 to 20000"),
        (["--pods", "20", "--ranks", "40"], "--ranks: 40 of 20 pods on 100 nodes; expected at most 20"),
    ],
)
def test_a_size_that_makes_no_cluster_is_refused(
    args: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        BENCHES["scale"].run(args)

    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_the_controller_is_given_the_access_that_the_bench_was_given() -> None:
    given = ["--kubeconfig", "a.yaml", "--context", "b", "--insecure-skip-tls-verify"]

    assert as_arguments(access_of(_parser().parse_args(given))) == given
    assert as_arguments(access_of(_parser().parse_args([]))) == []


async def test_the_stopwatch_tells_the_turns_that_take_long_and_whose_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy() -> None:
        until_s = time.thread_time() + 0.02
        while time.thread_time() < until_s:
            pass

    report = tmp_path / "steps"
    with report.open("ab", buffering=0) as file:
        monkeypatch.setattr(asyncio.Handle, "_run", timed(asyncio.Handle._run, file))
        await asyncio.create_task(asyncio.sleep(0))
        await asyncio.create_task(busy())
        monkeypatch.undo()
        file.write(b'{"at_s": 1')  # the next line is being written

    (found,) = (step for step in steps_of(report) if step.cpu_s >= 0.02)
    assert found.what.endswith("busy")
