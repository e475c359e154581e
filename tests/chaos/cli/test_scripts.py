"""Random scripts as values: drawn by a seed, written to a file, made smaller, and played by `rekindle chaos
simulate`."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from rich.console import Console

from chaos.cli import commands
from chaos.simulate.acts import AnyAct
from chaos.simulate.acts.faults import KernelLine, NodeDeath, RankCrash, RankHang
from chaos.simulate.acts.people import Pause
from chaos.simulate.command import seeds_of, simulate_file
from chaos.simulate.drawing import repair_script_of, script_of, situation_of
from chaos.simulate.many import play_seeds, sum_up
from chaos.simulate.script import Script, play_script
from chaos.simulate.shrinking import failure_of, shrink
from chaos.simulate.situations import ALL as ALL_SITUATIONS
from chaos.simulated.jobs import Job, Kind
from chaos.simulated.setup import Setup
from detectors.service.settings import SettingsError
from recover.api import Act, Outcome

SEEDS = range(400)


def test_a_script_that_was_written_down_is_the_same_script() -> None:
    for seed in range(50):
        for script in (script_of(seed), repair_script_of(seed)):
            assert msgspec.json.decode(msgspec.json.encode(script), type=Script) == script


def test_the_seeds_meet_every_kind_of_fault_and_of_job() -> None:
    scripts = [script_of(seed) for seed in SEEDS] + [repair_script_of(seed) for seed in range(100)]
    acts: Counter[str] = sum((script.kinds for script in scripts), Counter())
    # One more kind of act would change all seeds, so test_pauses_in_scripts.py adds pauses to their scripts.
    assert {act.__name__ for act in get_args(AnyAct)} - {Pause.__name__} == set(acts)
    assert {job.kind for script in scripts for job in script.jobs} == set(Kind)
    assert {2, 64} <= {job.ranks for script in scripts for job in script.jobs}


def test_two_scripts_of_five_begin_with_a_situation_and_each_names_nodes_that_are_there() -> None:
    plains, draw = [script_of(seed) for seed in range(20)], random.Random(1)
    assert 350 < sum(situation_of(seed) is not None for seed in range(1000)) < 450
    for _, situation in ALL_SITUATIONS:
        for plain in plains:
            script = situation(plain, draw)
            assert script.acts
            named = {getattr(act, "node", "n1") for act in script.acts}
            assert named <= set(script.setup.names)


def test_the_seeds_meet_every_oddity_of_a_cluster() -> None:
    scripts = [script_of(seed) for seed in SEEDS]
    setups = [script.setup for script in scripts]
    ranks = [sum(job.ranks for job in script.jobs) for script in scripts]
    assert any(count == setup.nodes * setup.gpus_per_node for count, setup in zip(ranks, setups, strict=True))
    for field in ("per_rack", "per_pool", "without_agent", "clock_leads_s", "joining"):
        assert any(getattr(setup, field) for setup in setups), field
    assert any(set(setup.without_agent) == set(setup.names) for setup in setups)
    jobs = [script.jobs for script in scripts]
    assert any(len({job.name for job in of_one}) < len(of_one) for of_one in jobs)
    for field in ("grace_s", "lingers_s", "rendezvous_s", "scanned"):
        assert any(getattr(job, field) for of_one in jobs for job in of_one), field


# --- made smaller -----------------------------------------------------------------------------------------

ACTS = tuple(KernelLine(60.0 + at, f"n{at % 6 + 1}", "mmu-fault") for at in range(10))


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> list[Script]:
    """Installs a world that fails if n2 dies after n1 has died, which are two acts of many. Returns the
    scripts that were played."""
    played: list[Script] = []

    def play(script: Script) -> None:
        played.append(script)
        dead = [act.node for act in script.acts if isinstance(act, NodeDeath)]
        assert dead != ["n1", "n2"], f"n1 is dead at 12:00:0{len(script.acts) % 10}\nand more"
        assert dead != ["n2"], "another thing is wrong"

    monkeypatch.setattr("chaos.simulate.shrinking.play_script", play)
    return played


def test_a_script_that_fails_is_made_as_small_as_it_can_be(dying: list[Script]) -> None:
    acts = (*ACTS[:5], NodeDeath(70.0, "n1"), *ACTS[5:], NodeDeath(90.0, "n2"))
    odd = Setup(per_rack=2, clock_leads_s={"n1": 1.0}, without_agent=("n3",))
    whole = Script(odd, (Job(), Job(name="other")), acts, spares=("n6",))

    smallest = shrink(whole, failure_of(whole), plays_max=200)

    assert smallest.script == Script(Setup(), (Job(name="other"),), (acts[5], acts[-1]))
    assert smallest.failure.startswith("n1 is dead")


def test_making_it_smaller_ends_with_its_plays(dying: list[Script]) -> None:
    acts = (NodeDeath(70.0, "n1"), *ACTS, NodeDeath(90.0, "n2"))
    whole = Script(Setup(), (Job(),), acts)
    failure = failure_of(whole)
    dying.clear()

    assert shrink(whole, failure, plays_max=3).plays == 3
    assert len(dying) == 3


def test_a_part_of_the_simulation_that_ends_with_an_error_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def breaks(*_: object) -> None:
        await asyncio.sleep(0)
        raise ValueError("defect")

    monkeypatch.setattr(KernelLine, "play", breaks)

    said = failure_of(Script(Setup(), (Job(ranks=2),), ACTS[:1]))

    assert "ValueError('defect')" in said


# --- the command ------------------------------------------------------------------------------------------


def test_several_processes_play_the_same_runs_as_one() -> None:
    seeds = [0, 1, 2, 4]
    alone, together = (sum_up(play_seeds(seeds, jobs)) for jobs in (1, 2))
    assert msgspec.structs.replace(alone, seconds=0) == msgspec.structs.replace(together, seconds=0)
    assert alone.runs == 4
    assert sum(alone.acts.values()) == sum(script_of(seed).kinds.total() for seed in seeds)


@pytest.mark.parametrize("text", ["", "3", "3-4", "4..3", "a..b", "-1..2", "1..2..3"])
def test_seeds_that_are_no_range_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(f" {text}:")):
        seeds_of(text)


def test_both_ends_of_the_seeds_are_played() -> None:
    assert list(seeds_of("3..5")) == [3, 4, 5]


def test_the_command_prints_what_the_scripts_held_and_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.chaos(["simulate", "--seeds", "0..1"]) == 0
    said = capsys.readouterr().out
    assert f"{Act.RESTART_GANG}: {Outcome.DONE}" in said
    assert "2 seeds" in said


@pytest.mark.parametrize(
    "args", [[], ["--seed", "1", "--seeds", "1..2"], ["--seeds", "2..1"], ["--script", "/no"]]
)
def test_the_command_refuses_what_it_cannot_play(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.chaos(["simulate", *args]) == 2
    assert "rekindle chaos:" in capsys.readouterr().err


def test_a_failing_seed_is_printed_with_its_smallest_script_which_can_be_played_again(
    dying: list[Script], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    acts = (*ACTS, NodeDeath(70.0, "n1"), NodeDeath(90.0, "n2"))
    monkeypatch.setattr("chaos.simulate.many.script_of", lambda _: Script(Setup(), (Job(),), acts))

    assert commands.chaos(["simulate", "--seed", "7", "--keep", str(tmp_path)]) == 1

    said = capsys.readouterr().out
    assert re.search(r"seed 7 .*\b2 .*\b12 ", said), "how many of its acts are left"
    assert "NodeDeath(node=n2)" in said
    assert said.splitlines()[-1].endswith(" 7"), "the seeds that failed"
    kept = tmp_path / "seed-7.json"
    assert not simulate_file(kept, plays_max=0, console=Console(quiet=True))


def test_a_script_of_a_file_is_played(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_bytes(msgspec.json.encode(Script(Setup(), (Job(ranks=2),), (RankHang(70.0, "llm", 0),))))
    assert simulate_file(path, plays_max=0, console=Console(quiet=True))
    path.write_text(json.dumps({"setup": {}}))
    with pytest.raises(SettingsError, match=re.escape(str(path))):
        simulate_file(path, plays_max=0, console=Console(quiet=True))


def test_two_jobs_of_one_name_and_different_kinds_recover_apart() -> None:
    jobs = (Job(ranks=2), Job(id="twin", kind=Kind.JOB, ranks=2))
    acts = (RankCrash(70.0, "llm", 0, "exit-1", ""), RankCrash(71.0, "twin", 1, "exit-1", ""))

    sim = play_script(Script(Setup(nodes=4), jobs, acts))

    assert [len(sim.recoveries(key)) for key in ("llm", "twin")] == [1, 1]
