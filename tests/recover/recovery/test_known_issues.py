"""Tests known issues in a recovery: Rekindle recognises them, changes the next start, verifies the change,
and gives up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from detectors.wire.training import Edge
from recover.api import Phase, RecipeOutcome, RecipeUse
from recover.api.reasons import Reason
from recover.api.recipe_spec import Change, LabelRule, Match, Placement
from recover.k8s.bodies import builtins
from recover.k8s.kinds import JOBS
from recover.model import Mark, Quarantine, Template
from recover.model.actions import Ensure, Patch
from recover.recipes.decide import environment
from recover.recipes.load import built_in
from recover.recipes.objects import seen, settle, to_object
from recover.recipes.placement import fulfils, placed_by
from recover.recovery.advance import advance
from recover.workloads.patches import MARK, asked_by_people, avoiding
from tests.acting import acts, advanced, first_step, look, only_recovery, recovering, step
from tests.builders import NOW, Worlds, cluster, gang
from tests.facts import names

OUT_OF_MEMORY = (
    "ResourceExhaustedError: Cannot allocate 1.000000GB memory on GPU 0, 3.200000GB memory has been "
    "allocated and available memory is only 12.100000GB."
)
TOO_OLD = (
    "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla "
    "V100-SXM2-32GB GPU has compute capability 7.0."
)
FLAG = "FLAGS_allocator_strategy"


def template(resources: dict[str, str], env: dict[str, str] | None = None) -> Template:
    """Returns a template with one container that requests these devices."""
    container = {
        "name": "train",
        "image": "paddle:3.3",
        "env": [{"name": name, "value": value} for name, value in (env or {}).items()],
        "resources": {"limits": resources},
    }
    return Template(containers=(container,))


def failed(said: str, asked: Template, *, nodes: int = 8) -> Worlds:
    """Returns a gang whose rank 2 printed this line and died, and whose recovery is planned."""
    world = cluster(nodes=nodes).running(gang(templates={"Worker": asked}))
    return recovering(world.says(said, rank=2).crash(rank=2))


def on_a_virtual_gpu(env: dict[str, str] | None = None) -> Worlds:
    return failed(OUT_OF_MEMORY, template({"tencent.com/vcuda-core": "30"}, env))


def handed_over(world: Worlds) -> dict[str, Any]:
    """Returns the environment of the next start, which the recovery is about to make."""
    (found,) = [a for a in look(world).actions if isinstance(a, Ensure)]
    data: dict[str, Any] = found.body["data"]
    return data


def again(world: Worlds, said: str = OUT_OF_MEMORY) -> Worlds:
    """Lets the gang run, print the same line, and die again."""
    advanced(world, Phase.VERIFYING)
    first_step(world.later(1), 1)
    world.says(said, rank=2)
    return recovering(world.crash(rank=2))


def test_the_change_of_a_recipe_that_fits_is_handed_over_and_told() -> None:
    world = on_a_virtual_gpu()

    advanced(world, Phase.RESUMING)

    (use,) = only_recovery(world).status.recipes
    assert (use.name, use.outcome, use.attempt) == ("paddle-autogrow-oom", RecipeOutcome.APPLIED, 1)
    assert "llm-worker-2" in use.seen
    assert "Cannot allocate" in use.seen
    assert handed_over(world)[FLAG] == "naive_best_fit"
    assert FLAG in only_recovery(world).status.message


def test_without_a_known_issue_nothing_is_recorded() -> None:
    world = failed("RuntimeError: shapes do not fit", template({"tencent.com/vcuda-core": "30"}))

    advanced(world, Phase.RESUMING)

    assert only_recovery(world).status.recipes == []
    assert FLAG not in handed_over(world)


def test_a_whole_card_is_no_virtual_gpu() -> None:
    world = failed(OUT_OF_MEMORY, template({"tencent.com/vcuda-core": "100"}))

    advanced(world, Phase.RESUMING)

    assert only_recovery(world).status.recipes == []


def test_an_explicit_variable_of_the_template_wins_and_its_owner_is_told() -> None:
    world = on_a_virtual_gpu({FLAG: "auto_growth"})

    advanced(world, Phase.RESUMING)

    (use,) = only_recovery(world).status.recipes
    assert use.outcome is RecipeOutcome.ADVISED
    assert names(use.message, FLAG)
    assert FLAG not in handed_over(world)


def test_of_two_variables_the_one_that_the_template_sets_is_not_said_to_be_changed() -> None:
    world = cluster(nodes=8).running(
        gang(templates={"Worker": template({"tencent.com/vcuda-core": "30"}, {"MORE": "0"})})
    )
    known = world.recipes["paddle-autogrow-oom"]
    change = msgspec.structs.replace(known.change, env={FLAG: "naive_best_fit", "MORE": "1"})
    world.recipes["paddle-autogrow-oom"] = msgspec.structs.replace(known, change=change)
    recovering(world.says(OUT_OF_MEMORY, rank=2).crash(rank=2))

    (use,) = advanced(world, Phase.RESUMING).status.recipes

    assert use.outcome is RecipeOutcome.APPLIED
    assert f"sets {FLAG}=naive_best_fit" in use.message
    assert "the template sets MORE and takes precedence" in use.message
    assert "MORE=1" not in use.message


def test_the_line_that_proves_the_change_is_waited_for_with_the_first_step() -> None:
    world = on_a_virtual_gpu()
    advanced(world, Phase.VERIFYING)

    first_step(world, 1)
    world.says("I0715 14:25:17.112233 12345 allocator.cc:256] Using Naive Best Fit allocation strategy")
    advanced(world, Phase.SUCCEEDED)

    conditions = {c.type: c for c in only_recovery(world).status.conditions}
    assert (conditions["RecipeVerified"].status, conditions["RecipeVerified"].reason) == ("True", "SeenInLog")
    assert conditions["ProgressVerified"].status == "True"


def test_the_line_proves_it_too_in_a_rank_that_prints_no_steps() -> None:
    world = on_a_virtual_gpu()
    advanced(world, Phase.VERIFYING)

    first_step(world, 1)
    world.says("Using Naive Best Fit allocation strategy", rank=1)
    for node, health in world.health.items():
        silent = [
            msgspec.structs.replace(p, edge=Edge.STARTED, first_step=None, last_step=None)
            if p.known_lines
            else p
            for p in health.status.pods
        ]
        status = msgspec.structs.replace(health.status, pods=silent)
        world.health[node] = msgspec.structs.replace(health, status=status)
    advanced(world, Phase.SUCCEEDED)

    (found,) = [c for c in only_recovery(world).status.conditions if c.type == "RecipeVerified"]
    assert (found.status, found.reason) == ("True", "SeenInLog")


def test_steps_without_the_line_prove_it_too_and_the_missing_line_is_told() -> None:
    world = on_a_virtual_gpu()
    advanced(world, Phase.VERIFYING)

    first_step(world, 1)
    advanced(world, Phase.SUCCEEDED)

    (found,) = [c for c in only_recovery(world).status.conditions if c.type == "RecipeVerified"]
    assert (found.status, found.reason) == ("True", "SeenBySteps")
    verify = world.recipes["paddle-autogrow-oom"].verify
    assert verify is not None
    assert names(found.message, *verify.log, verify.absent)


def test_the_owner_learns_at_once_that_the_template_of_a_job_reads_no_variables() -> None:
    world = on_a_virtual_gpu()
    job = world.gangs["llm-uid"]
    ref = msgspec.structs.replace(job.ref, api_version=JOBS.api_version, kind=JOBS.kind)
    world.gangs["llm-uid"] = msgspec.structs.replace(job, ref=ref, resource=JOBS)

    (use,) = advanced(world, Phase.RESUMING).status.recipes

    assert use.outcome is RecipeOutcome.APPLIED
    assert names(use.message, "no envFrom with ConfigMap llm-rekindle-job", "rekindle-environment")


def test_steps_prove_no_variable_that_has_not_reached_the_ranks() -> None:
    world = on_a_virtual_gpu()
    advanced(world, Phase.VERIFYING)
    pods = world.pods["llm-uid"]
    for uid, pod in pods.items():
        pods[uid] = msgspec.structs.replace(pod, environments=())

    first_step(world, 1)
    advanced(world, Phase.SUCCEEDED)

    (found,) = [c for c in only_recovery(world).status.conditions if c.type == "RecipeVerified"]
    assert (found.status, found.reason) == ("False", "NotSeen")
    assert names(found.message, "did not reach", "llm-worker-0")


def test_a_change_stands_at_a_later_restart_for_another_cause() -> None:
    world = on_a_virtual_gpu()

    again(world, "RuntimeError: shapes do not fit")
    advanced(world, Phase.STOPPING)
    advanced(world, Phase.RESUMING)

    assert len(only_recovery(world).status.recipes) == 1
    assert handed_over(world)[FLAG] == "naive_best_fit"


def test_an_issue_that_comes_back_is_given_up_and_the_change_taken_back() -> None:
    world = on_a_virtual_gpu()

    again(world)
    advanced(world, Phase.STOPPING)
    advanced(world, Phase.RESUMING)

    uses = only_recovery(world).status.recipes
    assert [(u.attempt, u.outcome) for u in uses] == [(1, RecipeOutcome.APPLIED), (2, RecipeOutcome.GAVE_UP)]
    assert handed_over(world)[FLAG] is None


def mended_and_then_crashing(times: int, **env: str) -> Worlds:
    """Returns a gang whose conflict over memory one recipe has fixed. For each crash after that, another
    recipe sets `env`."""
    asked = template({"tencent.com/vcuda-core": "30"})
    often = {"rekindle.dev/attempts-per-cause": "9"}
    world = cluster(nodes=8).running(gang(annotations=often, templates={"Worker": asked}))
    mended = world.recipes["paddle-autogrow-oom"]
    by_exit = msgspec.convert({"allOf": [{"exitCode": 139}]}, Match)
    change = msgspec.structs.replace(mended.change, env=env)
    world.recipes["crash"] = msgspec.structs.replace(mended, name="crash", match=by_exit, change=change)
    recovering(world.says(OUT_OF_MEMORY, rank=2).crash(rank=2))
    for _ in range(times):
        advanced(world, Phase.VERIFYING)
        first_step(world.later(1), 1)
        recovering(world.crash(rank=2, exit_code=139))
        advanced(world, Phase.STOPPING)
    advanced(world, Phase.RESUMING)
    return world


def test_a_recipe_that_gives_up_takes_nothing_back_that_another_one_has_set_too() -> None:
    world = mended_and_then_crashing(2, **{FLAG: "naive_best_fit", "MORE": "1"})

    assert [(use.name, use.outcome) for use in only_recovery(world).status.recipes] == [
        ("paddle-autogrow-oom", RecipeOutcome.APPLIED),
        ("crash", RecipeOutcome.APPLIED),
        ("crash", RecipeOutcome.GAVE_UP),
    ]
    assert handed_over(world)[FLAG] == "naive_best_fit"
    assert handed_over(world)["MORE"] is None


def test_a_recipe_whose_change_another_one_has_made_already_changes_nothing_and_says_so() -> None:
    world = mended_and_then_crashing(1, **{FLAG: "naive_best_fit"})

    use = only_recovery(world).status.recipes[-1]
    assert (use.name, use.outcome, use.env) == ("crash", RecipeOutcome.ADVISED, {})
    assert names(use.message, FLAG)
    assert handed_over(world)[FLAG] == "naive_best_fit"


def test_two_recipes_that_make_the_same_change_at_once_give_it_up_together() -> None:
    world = on_a_virtual_gpu()
    world.recipes["twin"] = msgspec.structs.replace(world.recipes["paddle-autogrow-oom"], name="twin")

    again(world)
    advanced(world, Phase.STOPPING)
    advanced(world, Phase.RESUMING)

    assert [(use.name, use.outcome) for use in only_recovery(world).status.recipes] == [
        ("paddle-autogrow-oom", RecipeOutcome.APPLIED),
        ("twin", RecipeOutcome.APPLIED),
        ("paddle-autogrow-oom", RecipeOutcome.GAVE_UP),
        ("twin", RecipeOutcome.GAVE_UP),
    ]
    assert handed_over(world)[FLAG] is None


DISABLED = msgspec.structs.replace(built_in()["paddle-autogrow-oom"], disabled=True)
BROKEN = {**to_object(DISABLED), "spec": {"title": "x"}}


@pytest.mark.parametrize(("written", "left"), [(to_object(DISABLED), None), (BROKEN, "naive_best_fit")])
def test_a_recipe_that_people_disable_is_reverted_and_one_that_they_break_is_not(
    written: dict[str, Any], left: str | None
) -> None:
    world = on_a_virtual_gpu()
    again(world, "RuntimeError: shapes do not fit")
    advanced(world, Phase.RESUMING)
    in_force = settle(built_in(), [seen(msgspec.json.encode(written))])

    known = msgspec.structs.replace(world.world(), recipes=in_force.recipes, judged_recipes=in_force.judged)
    found = advance(only_recovery(world), known, world.settings, world.now)

    (made,) = [a for a in found.actions if isinstance(a, Ensure)]
    assert made.body["data"][FLAG] == left


def test_what_a_recipe_has_set_and_sets_no_more_since_it_was_changed_is_taken_back() -> None:
    uses = [
        RecipeUse(name="mine", attempt=number, outcome=RecipeOutcome.APPLIED, env={variable: "1"})
        for number, variable in enumerate(("OLD", "NEW"), start=1)
    ]

    assert environment(uses) == {"OLD": None, "NEW": "1"}


# --- changes that only the owner can make, and nodes on which the gang may run ------------------------------


def on_an_old_gpu(**labels: str) -> Worlds:
    """Returns a gang in which vLLM prints its error on V100s. `labels` are labels of the node n7."""
    world = cluster(nodes=8).running(gang(templates={"Worker": template({"nvidia.com/gpu": "1"})}))
    for name in list(world.nodes):
        world.change_node(name, labels={"nvidia.com/gpu.compute.major": "7"})
    world.change_node("n7", labels={name.replace("_", "."): value for name, value in labels.items()})
    return recovering(world.says(TOO_OLD, rank=2).crash(rank=2))


def test_a_silent_next_attempt_is_not_judged_by_what_the_attempt_before_has_said() -> None:
    world = on_a_virtual_gpu()
    advanced(world, Phase.VERIFYING)
    world.later(3 * 3600)
    assert step(world) == ["recovery-stopping"]  # no step came, and no agent reported these ranks

    advanced(world, Phase.RESUMING)

    outcomes = [(use.attempt, use.outcome) for use in only_recovery(world).status.recipes]
    assert outcomes == [(1, RecipeOutcome.APPLIED)]
    assert handed_over(world)[FLAG] == "naive_best_fit"


def test_nor_by_how_its_ranks_had_ended() -> None:
    asked = template({"tencent.com/vcuda-core": "30"})
    world = cluster(nodes=8).running(gang(templates={"Worker": asked}))
    by_exit = msgspec.convert({"allOf": [{"exitCode": 1}]}, Match)
    world.recipes["by-exit"] = msgspec.structs.replace(
        world.recipes["paddle-autogrow-oom"], name="by-exit", match=by_exit
    )
    recovering(world.crash(rank=2))
    advanced(world, Phase.VERIFYING)
    world.later(3 * 3600)
    step(world)

    advanced(world, Phase.RESUMING)

    outcomes = [(use.attempt, use.outcome) for use in only_recovery(world).status.recipes]
    assert outcomes == [(1, RecipeOutcome.APPLIED)]


def test_a_change_that_comes_too_late_for_another_start_is_advice_and_counts_as_no_try() -> None:
    once = {"rekindle.dev/attempts-per-cause": "1"}
    asked = template({"tencent.com/vcuda-core": "30"})
    world = cluster(nodes=8).running(gang(annotations=once, templates={"Worker": asked}))
    recovering(world.crash(rank=2))
    advanced(world, Phase.VERIFYING)
    for pod in world.pods["llm-uid"].values():  # it dies before its first step
        world.progress(pod, Edge.STARTED, at=world.now)
    world.says(OUT_OF_MEMORY, rank=2)
    recovering(world.crash(rank=2))
    step(world)

    status = advanced(world, Phase.ESCALATED).status

    (use,) = status.recipes
    assert (status.reason, use.outcome, use.env) == (Reason.CRASH_LOOP, RecipeOutcome.ADVISED, {})
    assert "FLAGS_allocator_strategy=naive_best_fit" in use.advice


def test_where_no_node_is_fit_the_loop_ends_and_the_exact_change_is_told() -> None:
    world = on_an_old_gpu()

    advanced(world, Phase.ESCALATED)

    status = only_recovery(world).status
    assert status.reason == Reason.KNOWN_ISSUE
    assert status.recipes[0].outcome is RecipeOutcome.HELD
    assert "--dtype=half" in status.message
    assert "start-gang" not in acts(look(world))


def test_advice_never_crowds_out_what_was_changed() -> None:
    often = {"rekindle.dev/attempts-per-cause": "9"}
    asked = template({"tencent.com/vcuda-core": "30"})
    world = cluster(nodes=8).running(gang(annotations=often, templates={"Worker": asked}))
    in_any_case = msgspec.convert({"allOf": [{"framework": "paddle"}]}, Match)
    for number in range(9):
        world.recipes[f"a{number}"] = msgspec.structs.replace(
            world.recipes["cuda-invalid-image"],
            name=f"a{number}",
            match=in_any_case,
            change=Change(advise="see our runbook"),
        )
    recovering(world.says(OUT_OF_MEMORY, rank=2).crash(rank=2))

    again(world, "RuntimeError: shapes do not fit")
    advanced(world, Phase.STOPPING)
    advanced(world, Phase.RESUMING)

    uses = only_recovery(world).status.recipes
    assert len(uses) == 8
    assert (uses[0].name, uses[0].outcome) == ("paddle-autogrow-oom", RecipeOutcome.APPLIED)
    assert handed_over(world)[FLAG] == "naive_best_fit"


def test_a_change_beside_an_issue_that_holds_the_job_is_advice_and_counts_as_no_try() -> None:
    world = cluster(nodes=8).running(gang(templates={"Worker": template({"tencent.com/vcuda-core": "30"})}))
    world.says(OUT_OF_MEMORY, "the provided PTX was compiled with an unsupported toolchain", rank=2)
    recovering(world.crash(rank=2))

    status = advanced(world, Phase.ESCALATED).status

    assert [(use.name, use.outcome, use.env) for use in status.recipes] == [
        ("cuda-unsupported-ptx", RecipeOutcome.HELD, {}),
        ("paddle-autogrow-oom", RecipeOutcome.ADVISED, {}),
    ]
    assert "not done" in status.recipes[1].message


@pytest.mark.parametrize(("nodes", "phase"), [(1, Phase.ESCALATED), (2, Phase.RESUMING)])
def test_the_node_that_the_job_must_leave_is_no_fit_node(nodes: int, phase: Phase) -> None:
    asked = template({"nvidia.com/gpu": "1"})
    world = cluster(nodes=nodes).running(gang(ranks=1, templates={"Worker": asked}))
    too_old = "RuntimeError: CUDA driver version is insufficient for CUDA runtime version"
    recovering(world.says(too_old, rank=0).crash(rank=0))

    (use,) = advanced(world, phase).status.recipes

    assert (use.name, use.outcome is RecipeOutcome.HELD) == ("cuda-driver-too-old", nodes == 1)
    assert ("no other node" in use.message) is (nodes == 1)


def test_where_a_node_is_fit_the_gang_is_placed_there_and_ours_is_undone_exactly() -> None:
    world = on_an_old_gpu(**{"nvidia.com/gpu.compute.major": "8"})
    advanced(world, Phase.RESUMING)

    (start,) = [a for a in look(world).actions if isinstance(a, Patch) and a.what == "start-gang"]

    wanted = {"key": "nvidia.com/gpu.compute.major", "operator": "Gt", "values": ["7"]}
    spec = start.body["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert wanted in term["matchExpressions"]
    mark = mark_in(start)
    job = msgspec.structs.replace(world.gangs["llm-uid"], mark=mark)
    nothing = msgspec.structs.replace(mark, avoided=(), placed=(), suspected=())
    undone = avoiding(spec["affinity"], job, nothing)["nodeAffinity"]
    assert not any(undone.values())


def mark_in(patch: Patch) -> Mark:
    return msgspec.json.decode(patch.body["metadata"]["annotations"][MARK], type=Mark)


def test_what_people_ask_of_the_nodes_themselves_is_never_undone() -> None:
    theirs = {"key": "nvidia.com/gpu.compute.major", "operator": "Gt", "values": ["7"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [theirs]}]}
    asked = template({"nvidia.com/gpu": "1"})
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    world = on_an_old_gpu(**{"nvidia.com/gpu.compute.major": "8"})
    world.change_gang(templates={"Worker": msgspec.structs.replace(asked, affinity=affinity)})
    advanced(world, Phase.RESUMING)

    (start,) = [a for a in look(world).actions if isinstance(a, Patch) and a.what == "start-gang"]

    assert mark_in(start).placed == ()


@pytest.mark.parametrize(
    "now",
    [
        {"unschedulable": True},
        {"ready": False},
        {"quarantine": Quarantine(incident="n7", fault="memory-degraded", at=NOW, cordoned=False)},
    ],
)
def test_a_node_that_takes_no_pods_for_a_while_is_waited_for(now: dict[str, Any]) -> None:
    world = on_an_old_gpu(**{"nvidia.com/gpu.compute.major": "8"})
    world.change_node("n7", **now)

    advanced(world, Phase.RESUMING)

    (use,) = only_recovery(world).status.recipes
    assert use.outcome is RecipeOutcome.APPLIED


@pytest.mark.parametrize(
    "theirs",
    [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [f"n{i}" for i in range(20)]},
        {"key": "zone", "operator": "Near", "values": ["a"]},
        {"key": "zone", "operator": "In", "values": ["a" * 64]},
        {"key": "nvidia.com/gpu.count", "operator": "Gt", "values": ["many"]},
    ],
)
def test_whatever_people_ask_of_the_nodes_the_gang_is_started_again(theirs: dict[str, Any]) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [theirs]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    asked = msgspec.structs.replace(template({"nvidia.com/gpu": "1"}), affinity=affinity)
    world = failed("RuntimeError: shapes do not fit", asked)

    advanced(world, Phase.VERIFYING)

    (found,) = asked_by_people(world.gangs["llm-uid"])
    assert builtins(found) == theirs
    assert not fulfils(world.nodes["n0"], [found])


@pytest.mark.parametrize(("least", "operator", "values"), [("0", "Exists", []), ("1", "Gt", ["0"])])
def test_no_requirement_holds_what_a_label_cannot_be(least: str, operator: str, values: list[str]) -> None:
    rule = LabelRule(name="nvidia.com/gpu.compute.major", at_least="{needed}")

    (asked,) = placed_by(Placement(require=[rule]), {"needed": least})

    assert (asked.operator, asked.values) == (operator, values)


# --- failures that the program has not caused, and lines that have not ended the training ----------------

INVALID_IMAGE = "UserWarning: fused kernel: device kernel image is invalid, falling back"
ON_A_SHARE = template({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000"}, {"CUDA_VERSION": "11.8.0"})
VERSIONS = {
    "cuda-major-version": "12",
    "cuda-minor-version": "4",
    "rekindle.dev/vgpu-baseline": "12.4",
}


def on_a_share(said: str) -> Worlds:
    """Returns a gang on virtual GPUs whose baseline has another CUDA major version than the image."""
    world = cluster(nodes=8).running(gang(templates={"Worker": ON_A_SHARE}))
    for name in list(world.nodes):
        world.change_node(name, labels=VERSIONS)
    return world.says(said, rank=2)


@pytest.mark.parametrize("said", ["RuntimeError: CUDA error: unknown error", INVALID_IMAGE])
@pytest.mark.parametrize("is_dead", [True, False])
def test_a_nodes_fault_is_no_known_issue_of_the_job_and_the_job_is_started_again(
    said: str, is_dead: bool
) -> None:
    world = on_a_share(said).finding(on="n2", ago_s=3)
    recovering(world.crash(rank=2) if is_dead else world)

    status = advanced(world, Phase.RESUMING).status

    assert status.recipes == []
    assert status.avoid_nodes == ["n2"]


def test_the_same_line_without_a_nodes_fault_holds_the_job() -> None:
    world = recovering(on_a_share("RuntimeError: CUDA error: unknown error").crash(rank=2))

    assert advanced(world, Phase.ESCALATED).status.reason == Reason.KNOWN_ISSUE


@pytest.mark.parametrize("reason", ["Evicted", "Preempting", "NodeShutdown"])
def test_a_pod_that_the_kubelet_ended_shows_no_known_issue_of_its_program(reason: str) -> None:
    world = on_a_share(INVALID_IMAGE).crash(rank=2)
    pods = world.pods["llm-uid"]
    pods["llm-2-uid"] = msgspec.structs.replace(pods["llm-2-uid"], failure=f"{reason}: ended", containers=())
    recovering(world)

    status = advanced(world, Phase.RESUMING).status

    assert status.recipes == []


def test_a_recipe_that_names_the_fault_of_the_node_applies_to_it() -> None:
    world = on_a_share(INVALID_IMAGE).finding(on="n2", ago_s=3)
    match = msgspec.convert({"allOf": [{"fault": "device-lost"}, {"signal": "xid-79"}]}, Match)
    world.recipes["mine"] = msgspec.structs.replace(
        world.recipes["paddle-autogrow-oom"], name="mine", match=match
    )
    recovering(world.crash(rank=2))

    status = advanced(world, Phase.RESUMING).status

    assert [(use.name, use.outcome) for use in status.recipes] == [("mine", RecipeOutcome.APPLIED)]


def stepped_later(world: Worlds, seconds: float) -> Worlds:
    """Lets rank 0, whose log alone shows steps, make a step so long after the lines of all ranks."""
    health = world.health["n0"]
    at = world.now + timedelta(seconds=seconds)
    pods = [msgspec.structs.replace(p, last_step_at=at) for p in health.status.pods]
    status = msgspec.structs.replace(health.status, pods=pods)
    world.health["n0"] = msgspec.structs.replace(health, status=status)
    return world


def test_a_line_after_which_the_job_has_trained_does_not_hold_the_job() -> None:
    world = stepped_later(on_a_share(INVALID_IMAGE), 3600).later(3700)
    recovering(world.crash(rank=2))

    (use,) = advanced(world, Phase.RESUMING).status.recipes

    assert (use.name, use.outcome) == ("cuda-invalid-image", RecipeOutcome.ADVISED)
    assert "made training steps after the line" in use.message
    assert "CUDA version" in use.advice


def test_a_line_with_which_the_training_ends_holds_the_job_though_another_rank_ends_its_step() -> None:
    world = stepped_later(on_a_share(INVALID_IMAGE), 5).later(60)
    recovering(world.crash(rank=2))

    assert advanced(world, Phase.ESCALATED).status.reason == Reason.KNOWN_ISSUE


def test_a_later_line_of_another_rank_holds_the_job_after_an_earlier_one_did_not() -> None:
    world = stepped_later(on_a_share(INVALID_IMAGE), 3600).later(3700)
    world.says("RuntimeError: CUDA error: device kernel image is invalid", rank=3)
    recovering(world.crash(rank=2))

    status = advanced(world, Phase.ESCALATED).status

    assert status.reason == Reason.KNOWN_ISSUE
    assert "llm-worker-3" in status.recipes[-1].seen
