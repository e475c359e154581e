"""Stories in virtual time: dead nodes, limits, and people who intervene.

Each story plays with the shipped settings unless it sets others, and every invariant of chaos/simulate is
checked after each write.
"""

from __future__ import annotations

from chaos.cluster.containers import Exit
from chaos.simulate.play import comes_to_rest, play
from chaos.simulate.world import Simulation
from chaos.simulated import lines
from chaos.simulated.jobs import Job, Storage
from chaos.simulated.setup import Setup
from recover.api import Outcome, Phase
from recover.model.modes import Mode
from recover.policy.settings import Budgets, Settings
from tests.chaos.simulate.telling import HANGS_SOON, over, reasons

# --- dead nodes -------------------------------------------------------------------------------------------


def test_a_dead_node_whose_pods_hold_no_volume_is_given_up_after_300_s_of_silence() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(storage=Storage.SCRATCH, annotations=HANGS_SOON))
        await sim.passes(65)
        died_at = sim.clock.now()
        await sim.crash_node("n2")
        await sim.until(lambda: over(sim), within_s=900)
        status = sim.recovery().status
        assert status.phase is Phase.SUCCEEDED
        assert Phase.FENCING in [t.phase for t in status.phases]
        assert 300 < (sim.clock.now() - died_at).total_seconds() < 480
        before = gang.step
        await comes_to_rest(sim)
        assert gang.step > before + 300

    play(story)


def test_a_dead_node_whose_pod_holds_a_claim_blocks_until_a_person_says_that_it_is_off() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(storage=Storage.CLAIM, annotations=HANGS_SOON))
        await sim.passes(65)
        await sim.crash_node("n2")
        await sim.passes(3600)
        assert sim.recovery().status.phase is Phase.BLOCKED
        assert sim.recovery().status.reason == "NeedsFencingProof"
        stuck_at = gang.step
        await sim.person.out_of_service("n2")
        await comes_to_rest(sim)
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        assert gang.step > stuck_at

    play(story)


def test_a_dead_node_that_boots_again_is_the_proof_that_its_pods_are_gone() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(storage=Storage.CLAIM, annotations=HANGS_SOON))
        await sim.passes(65)
        await sim.crash_node("n2")
        await sim.passes(1200)
        stuck_at = gang.step
        await sim.boot_node("n2")
        await comes_to_rest(sim)
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        assert sim.cordoned() == []
        assert gang.step > stuck_at

    play(story)


# --- limits and people ------------------------------------------------------------------------------------


def test_the_same_fault_on_5_of_100_nodes_within_5_minutes_trips_the_brake() -> None:
    async def story(sim: Simulation) -> None:
        await sim.passes(5)
        for node in ("n10", "n20", "n30", "n40", "n50"):
            sim.kernel(node, lines.FALLEN_OFF_THE_BUS)
        await sim.passes(60)
        assert len(sim.cordoned()) <= 5
        brakes = [i for i in sim.incidents() if i.metadata.name.startswith("fleet-brake")]
        assert len(brakes) == 1
        sim.kernel("n60", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(60)
        assert "n60" not in sim.cordoned()
        (brake,) = [i for i in sim.incidents() if i.metadata.name.startswith("fleet-brake")]
        assert "n60" in brake.status.members

    play(story, Setup(nodes=100, heartbeat_s=20.0, tick_s=20.0))


def test_nodes_that_the_limit_of_an_hour_keeps_in_service_are_one_incident_until_they_leave_service() -> None:
    async def story(sim: Simulation) -> None:
        await sim.passes(5)
        struck = [f"n{number}" for number in range(10, 22)]
        for node in struck:
            sim.kernel(node, lines.FALLEN_OFF_THE_BUS)
        await sim.passes(60)
        assert len(sim.cordoned()) == 1
        (held,) = [i for i in sim.incidents() if i.metadata.name.startswith("quarantine-limit")]
        named = {i.spec.node for i in sim.incidents()} | {*held.status.members}
        assert named >= {*struck}
        await sim.passes(3700)
        assert len(sim.cordoned()) == 2
        await comes_to_rest(sim)

    budgets = Budgets(quarantines_per_hour_max=1, quarantined_percent_max=3.0, brake_percent=100.0)
    settings = Settings(mode=Mode.RECOVER, budgets=budgets)
    play(story, Setup(nodes=100, heartbeat_s=20.0, tick_s=20.0, settings=settings))


def test_a_person_who_uncordons_a_node_wins_and_is_remembered_over_a_restart() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job())
        await sim.passes(65)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.until(lambda: over(sim), within_s=60)
        await sim.person.uncordon("n2")
        await sim.passes(5)
        node = sim.node("n2")
        assert sim.cordoned() == []
        assert node["spec"].get("taints", []) == []
        assert "rekindle.dev/quarantined-by" not in node["metadata"]["annotations"]
        await sim.restart_controller()
        await comes_to_rest(sim)
        assert sim.cordoned() == []
        assert len(sim.recoveries()) == 1
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(5)
        assert sim.cordoned() == ["n2"]

    play(story)


def test_a_cordon_and_a_taint_of_somebody_else_stay_as_they_are() -> None:
    async def story(sim: Simulation) -> None:
        taint = {"key": "example.com/maintenance", "value": "disk", "effect": "NoSchedule"}
        await sim.person.edit_node("n2", {"spec": {"unschedulable": True, "taints": [taint]}})
        await sim.passes(5)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(5)
        assert [t["key"] for t in sim.node("n2")["spec"]["taints"]] == [
            taint["key"],
            "rekindle.dev/unhealthy",
        ]
        await sim.person.edit_node("n2", {"spec": {"taints": [taint]}})
        await comes_to_rest(sim)
        assert sim.node("n2")["spec"] == {"unschedulable": True, "taints": [taint]}

    play(story)


def test_a_taint_that_a_person_sets_while_our_view_is_old_survives_the_quarantine() -> None:
    async def story(sim: Simulation) -> None:
        taint = {"key": "example.com/maintenance", "value": "disk", "effect": "NoSchedule"}
        await sim.passes(5)
        sim.client.disturbance.watch_lag_s = 3.0
        await sim.passes(5)
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(2.9)
        await sim.person.edit_node("n2", {"spec": {"taints": [taint]}})
        await sim.passes(10)
        assert [t["key"] for t in sim.node("n2")["spec"]["taints"]] == [
            taint["key"],
            "rekindle.dev/unhealthy",
        ]
        await comes_to_rest(sim)

    play(story)


def test_a_held_job_is_not_stopped_until_the_hold_ends() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job(annotations={"rekindle.dev/hold": "true"}))
        await sim.passes(65)
        sim.crash_rank(1, Exit(1))
        await sim.passes(600)
        assert sim.recoveries() == []
        assert reasons(sim, Outcome.REFUSED) == {"Held"}
        await sim.person.edit_job({"metadata": {"annotations": {"rekindle.dev/hold": None}}})
        await comes_to_rest(sim)
        assert sim.recovery().status.phase is Phase.SUCCEEDED
        assert gang.step > 100

    play(story)


def test_a_job_that_a_person_suspends_is_not_started_again() -> None:
    async def story(sim: Simulation) -> None:
        gang = await sim.submit(Job())
        await sim.passes(65)
        await sim.person.edit_job({"spec": {"runPolicy": {"suspend": True}}})
        await sim.passes(5)
        stopped_at = gang.step
        sim.kernel("n2", lines.FALLEN_OFF_THE_BUS)
        await sim.passes(3600)
        assert sim.recoveries() == []
        assert gang.step == stopped_at

    play(story)


def test_a_job_that_is_deleted_while_it_is_recovered_ends_its_recovery() -> None:
    async def story(sim: Simulation) -> None:
        await sim.submit(Job(storage=Storage.CLAIM, annotations=HANGS_SOON))
        await sim.passes(65)
        await sim.crash_node("n2")
        await sim.until(lambda: bool(sim.recoveries()), within_s=600)
        await sim.person.delete_job()
        await comes_to_rest(sim)
        assert sim.recovery().status.phase is Phase.FAILED
        assert sim.recovery().status.reason == "JobGone"

    play(story)
