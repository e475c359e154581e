"""Tests the estimate of whether a whole gang fits: it never says no if the scheduler could say yes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from recover.api import Phase, Toleration
from recover.api.reasons import Reason
from recover.model import Container, Mark, Pod, PodPhase, Quarantine, Taint, Template, Waiting
from recover.triage.capacity import Room, room
from recover.triage.offers import Supply
from tests.acting import acts, advanced, look, only_recovery, recovering, start_pods, step
from tests.builders import NOW, Worlds, cluster, gang
from tests.facts import names

GPU = "nvidia.com/gpu"
CONTAINER = {"name": "train", "resources": {"limits": {GPU: 8}}}


def template(**changes: Any) -> Template:
    return msgspec.structs.replace(Template(containers=(CONTAINER,)), **changes)


def machines(nodes: int, *, ranks: int = 3, of: Template | None = None) -> Worlds:
    """Returns nodes of eight GPUs, and a gang with a rank on each of the first nodes."""
    world = cluster(nodes)
    for name in world.nodes:
        world.change_node(
            name,
            labels={"kubernetes.io/hostname": name, "pool": "a" if name < "n3" else "b"},
            allocatable={GPU: 8},
            capacity={GPU: 8, "nvidia.com/mig-1g.10gb": 0},
        )
    return world.running(gang(ranks=ranks, templates={"Worker": of or template()}))


def occupied(world: Worlds, name: str, **changes: Any) -> Worlds:
    """Lets another gang's pod occupy the whole node."""
    pod = Pod(
        namespace="other",
        name=f"other-{name}",
        uid=f"other-{name}",
        version="1",
        owner_uid="other",
        node=name,
        phase=PodPhase.RUNNING,
        requests=((GPU, 8),),
    )
    world.pods.setdefault("other", {})[pod.uid] = msgspec.structs.replace(pod, **changes)
    return world


def estimate(world: Worlds, **given: Any) -> Room:
    return room(Supply(world.world()), world.gangs["llm-uid"], world.now, **given)


def test_a_gang_fits_where_it_runs() -> None:
    world = machines(3)
    for uid, pod in world.pods["llm-uid"].items():
        world.pods["llm-uid"][uid] = msgspec.structs.replace(pod, requests=((GPU, 8),))

    assert estimate(world).fits


def test_without_one_of_three_nodes_one_rank_has_no_place_and_the_reason_is_given() -> None:
    found = estimate(machines(3), without={"n1": "xid-79"})

    assert (found.missing, found.lacking, found.size) == (1, 1, 3)
    assert (found.request, found.out) == (f"{GPU}: 8", (("n1", "xid-79"),))
    assert names(found.words, 1, 3, f"{GPU}: 8", "n1", "xid-79")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"ready": False}, []),
        ({"unschedulable": True}, ["cordoned"]),
        (
            {
                "unschedulable": True,
                "quarantine": Quarantine(incident="i", fault="nvlink", at=NOW, cordoned=True),
            },
            ["nvlink", "kubectl uncordon n2"],
        ),
        ({"taints": (Taint(key="maintenance", effect="NoSchedule"),)}, ["maintenance:NoSchedule"]),
        ({"taints": (Taint(key="gone", effect="NoExecute", value="x"),)}, ["gone=x:NoExecute"]),
        ({"taints": (Taint(key="rekindle.dev/spare", effect="NoSchedule"),)}, ["spare"]),
        ({"allocatable": {GPU: 7}}, [7, 8, GPU]),
    ],
)
def test_a_node_that_takes_no_rank_is_named_with_its_reason(
    change: dict[str, Any], why: list[object]
) -> None:
    found = estimate(machines(3).change_node("n2", **change))

    assert found.missing == 1
    ((name, told),) = found.out
    assert name == "n2"
    assert told
    assert names(told, *why)


def test_a_node_that_came_back_without_a_device_is_named_after_those_that_are_out() -> None:
    """Its kubelet then reports a capacity of seven, as if the node had never had eight."""
    world = machines(4).change_node("n0", allocatable={GPU: 7}, capacity={GPU: 7})
    world.change_node("n3", allocatable={}, capacity={"nvidia.com/mig-1g.10gb": 7})

    found = estimate(world, without={"n1": "xid-79"})

    assert [name for name, _ in found.out] == ["n1", "n0"]
    assert names(found.out[-1][1], 7, GPU)


def test_a_node_that_is_not_ready_is_told_otherwise_than_one_that_is_cordoned() -> None:
    silent, cordoned = (
        estimate(machines(3).change_node("n2", **change)).out
        for change in ({"ready": False}, {"unschedulable": True})
    )

    assert silent != cordoned


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"key": "maintenance", "operator": "Exists"}, True),
        ({"key": "maintenance", "operator": "Equal", "value": "now"}, True),
        ({"key": "maintenance", "value": "now", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "maintenance", "value": "later"}, False),
        ({"key": "maintenance", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "maintenance", "operator": "Gt", "value": "900"}, True),
        ({"key": "maintenance", "operator": "Lt", "value": "900", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "operator": "Gt", "value": "900"}, False),
    ],
)
def test_a_taint_that_the_ranks_tolerate_keeps_none_out(toleration: dict[str, Any], fits: bool) -> None:
    world = machines(3, of=template(tolerations=(toleration,)))
    world.change_node("n2", taints=(Taint(key="maintenance", effect="NoSchedule", value="now"),))

    assert estimate(world).fits is fits


def test_a_taint_named_as_what_the_ranks_ask_for_keeps_none_out() -> None:
    """GKE taints all its GPU nodes in this way, and its admission adds the toleration to each pod."""
    world = machines(3)
    for name in world.nodes:
        world.change_node(name, taints=(Taint(key=GPU, effect="NoSchedule", value="present"),))

    assert estimate(world).fits
    world.change_node("n2", taints=(Taint(key=GPU, effect="NoExecute", value="present"),))
    assert estimate(world).missing == 1


def reserved_by_webhook() -> Worlds:
    """Returns a cluster with tainted nodes, in which only the pods have the toleration, because a webhook
    added it."""
    world = machines(4)
    for name in world.nodes:
        world.change_node(name, taints=(Taint(key="team", effect="NoSchedule", value="ml"),))
    added = Toleration(key="team", operator="Equal", value="ml", effect="NoSchedule")
    pods = world.pods["llm-uid"]
    for uid, pod in pods.items():
        pods[uid] = msgspec.structs.replace(pod, tolerations=(added,))
    return world


def test_a_taint_that_only_the_pods_tolerate_keeps_none_out() -> None:
    assert estimate(reserved_by_webhook()).fits


def test_what_the_old_pods_tolerated_is_known_at_the_start_when_they_are_gone() -> None:
    world = recovering(reserved_by_webhook().finding(on="n1"))
    advanced(world, Phase.RESUMING)
    assert world.pods["llm-uid"] == {}

    assert "start-gang" in step(world)


def test_a_taint_that_only_prefers_others_keeps_none_out() -> None:
    world = machines(3).change_node("n2", taints=(Taint(key="x", effect="PreferNoSchedule"),))

    assert estimate(world).fits


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, False),
        ({"phase": PodPhase.SUCCEEDED}, True),
        ({"deleting_since": NOW}, True),
        ({"deleting_since": NOW, "deleting_until": NOW + timedelta(seconds=180)}, True),
        ({"deleting_since": NOW, "deleting_until": NOW + timedelta(days=3650)}, False),
        ({"deleting_since": NOW, "deleting_until": datetime(2311, 1, 1, tzinfo=UTC)}, False),
        ({"deleting_since": NOW - timedelta(hours=1), "deleting_until": NOW - timedelta(seconds=1)}, True),
        ({"deleting_since": NOW - timedelta(hours=1), "deleting_until": NOW - timedelta(minutes=4)}, False),
        ({"deleting_since": NOW, "deleting_until": NOW + timedelta(days=3650), "priority": -1}, True),
        ({"priority": -1}, True),
        ({"node": ""}, True),
        ({"requests": ()}, True),
    ],
)
def test_what_others_hold_is_not_free_unless_it_ends_or_makes_room(
    changes: dict[str, Any], fits: bool
) -> None:
    world = occupied(machines(4), "n3", **changes)

    assert estimate(world, without={"n1": "broken"}).fits is fits


def test_of_a_gang_whose_priority_is_only_known_by_name_every_pod_may_make_room() -> None:
    world = occupied(machines(4, of=template(priority_class="production")), "n3")
    world.pods["llm-uid"].clear()

    assert estimate(world, without={"n1": "broken"}).fits
    assert not estimate(world, without={"n1": "broken"}, priority=0).fits


def test_a_gang_that_never_preempts_waits_for_pods_of_lower_priority() -> None:
    """The class has `preemptionPolicy: Never`, as Kubernetes recommends for batch work that is urgent."""
    world = occupied(machines(4), "n3", priority=-1)
    pods = world.pods["llm-uid"]
    for uid, pod in pods.items():
        pods[uid] = msgspec.structs.replace(pod, priority=1000, preempts=False)

    assert not estimate(world, without={"n1": "broken"}).fits

    recovering(world.finding(on="n1"))
    advanced(world, Phase.BLOCKED)
    assert only_recovery(world).status.reason == Reason.NO_CAPACITY


def test_selectors_and_affinity_of_the_template_are_heeded_and_ours_of_before_is_not() -> None:
    def term(operator: str, *names: str) -> dict[str, Any]:
        one = {"key": "kubernetes.io/hostname", "operator": operator, "values": list(names)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [one]}]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}

    assert not estimate(machines(6, ranks=4, of=template(node_selector={"pool": "a"}))).fits
    assert estimate(machines(6, ranks=3, of=template(node_selector={"pool": "a"}))).fits
    assert not estimate(machines(3, of=template(affinity=term("NotIn", "n1")))).fits
    assert not estimate(machines(3, of=template(affinity=term("In", "n0", "n1")))).fits
    ours = machines(3, of=template(affinity=term("NotIn", "n1")))
    ours.change_gang(mark=Mark(recovery="r", attempt=1, did="resumed", avoided=("n1",)))
    assert estimate(ours).fits


@pytest.mark.parametrize(
    "of",
    [
        Template(),
        template(containers=({"resources": {"limits": {"example.com/fpga": 1}}},)),
        template(containers=({"resources": {"limits": {GPU: "1.5"}}},)),
        template(containers=({"resources": None},)),
    ],
)
def test_what_nobody_knows_counts_as_fitting(of: Template) -> None:
    assert estimate(machines(3, ranks=3, of=of), without={"n0": "", "n1": "", "n2": ""}).fits


def with_terms(count: int, *, values: int = 0) -> Template:
    """Returns a template with this number of node selector terms, none of which matches a node."""
    one = {"key": "a", "operator": "In", "values": [str(n) for n in range(values)]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [one]}] * count}
    return template(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})


@pytest.mark.parametrize(
    "roles",
    [
        {"Worker": with_terms(8000)},
        {"Worker": with_terms(1, values=5000)},
        {str(n): with_terms(1) for n in range(1000)},
    ],
    ids=["terms", "values", "templates"],
)
def test_rules_that_are_too_long_are_not_compared_with_each_node(
    roles: dict[str, Template], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job of 512 KiB took eleven seconds of each reconcile pass over a thousand nodes."""
    world = machines(3)
    world.change_gang(templates=roles)
    monkeypatch.setattr("recover.triage.node_rules.carries", lambda *_: pytest.fail("a rule is read"))

    assert estimate(world).fits


def test_a_few_hundred_terms_are_read() -> None:
    assert estimate(machines(3, of=with_terms(200))).missing == 3
    assert estimate(machines(3, of=with_terms(1, values=1000))).missing == 3


def test_equal_taints_are_compared_with_the_tolerations_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr("recover.triage.node_rules.tolerates", lambda *pair: compared.append(pair) or True)
    world = machines(8)
    for at, name in enumerate(world.nodes):
        world.change_node(name, taints=(Taint("a", "NoSchedule", time_added=f"2026-11-2{at}T00:00:00Z"),))

    assert estimate(world).fits
    assert len(compared) == 1


def test_templates_that_ask_for_the_same_share_the_places() -> None:
    world = machines(3)
    roles = {"Master": template(count=1), "Worker": template(count=3)}
    world.change_gang(templates=roles, size=4)

    found = estimate(world)
    assert (found.lacking, found.size) == (1, 4)


@pytest.mark.parametrize(
    ("devices", "nodes", "lacking"), [(1, 3, 1), (1, 4, 0), (4, 3, 1), (4, 4, 0), (16, 4, 1)]
)
def test_a_chief_with_another_number_of_devices_needs_a_place_beside_the_workers(
    devices: int, nodes: int, lacking: int
) -> None:
    """A TFJob may have a chief with one GPU, and workers with eight."""
    chief = template(containers=({"resources": {"limits": {GPU: devices}}},), count=1)
    world = machines(nodes)
    world.change_gang(templates={"Chief": chief, "Worker": template(count=3)}, size=4)

    found = estimate(world)

    assert (found.lacking, found.missing) == (lacking, lacking)


def test_ranks_of_different_sizes_that_select_different_nodes_do_not_share_places() -> None:
    chief = template(containers=({"resources": {"limits": {GPU: 1}}},), count=1, node_selector={"pool": "b"})
    world = machines(4)
    roles = {"Chief": chief, "Worker": template(count=3, node_selector={"pool": "a"})}
    world.change_gang(templates=roles, size=4)

    assert estimate(world).fits
    assert estimate(world, without={"n3": "xid-79"}).lacking == 1


def test_ranks_that_begin_when_others_have_succeeded_use_the_places_of_those() -> None:
    """A JobSet may prepare its data on the GPUs on which it trains afterwards (`dependsOn` with Complete)."""
    world = machines(3)
    roles = {
        "prepare": template(count=2),
        "check": template(count=2, after=("prepare",)),
        "train": template(count=3, after=("check",)),
    }
    world.change_gang(templates=roles, size=7)

    assert estimate(world).fits
    found = estimate(world, without={"n1": "xid-79"})
    assert (found.lacking, found.size) == (1, 3)
    roles["train"] = template(count=3)
    world.change_gang(templates=roles)
    assert (estimate(world).lacking, estimate(world).size) == (2, 5), "they run beside those that prepare"


def test_a_circle_of_ranks_that_wait_for_each_other_ends() -> None:
    world = machines(3)
    roles = {"a": template(count=1, after=("b",)), "b": template(count=1, after=("a",))}
    world.change_gang(templates=roles, size=2)

    assert estimate(world).fits


# --- waiting until there is room --------------------------------------------------------------------------


def struck(nodes: int = 3) -> Worlds:
    """Returns a gang of three, one of whose nodes has lost its GPU and is cordoned."""
    world = machines(nodes)
    recovering(world.finding(on="n1"))
    assert world.nodes["n1"].unschedulable
    return world


def held(world: Worlds) -> Worlds:
    advanced(world, Phase.BLOCKED)
    assert world.gangs["llm-uid"].suspended
    return world


def test_a_gang_that_does_not_fit_is_not_started_and_says_which_ranks_lack_a_place_and_why() -> None:
    world = held(struck())

    status = only_recovery(world).status
    assert (status.reason, world.now - NOW) == (Reason.NO_CAPACITY, timedelta())
    assert names(status.message, 1, 3, f"{GPU}: 8", "n1")
    assert acts(look(world)) == []


def test_it_starts_by_itself_as_soon_as_it_fits() -> None:
    world = held(struck())
    world.nodes["n9"] = msgspec.structs.replace(world.nodes["n0"], name="n9", uid="n9-uid")

    assert step(world.later(3600)) == ["recovery-resuming"]
    assert "start-gang" in step(world)
    start_pods(world.later(2))
    step(world)
    assert only_recovery(world).status.phase is Phase.VERIFYING


def test_the_message_follows_what_is_out_and_nothing_is_written_for_what_merely_comes_and_goes() -> None:
    world = held(occupied(occupied(struck(5), "n3"), "n4"))
    before = only_recovery(world).status.message
    assert names(before, 2)
    assert not names(before, "n4")
    world.pods["other"].popitem()
    world.change_node("n4", ready=False)

    assert step(world) == ["recovery-blocked"]
    after = only_recovery(world).status.message
    assert names(after, "n4")
    assert not names(after, 2)
    assert step(world) == []


def test_an_elastic_gang_is_started_with_the_fewest_ranks_that_it_trains_with() -> None:
    world = struck().change_gang(may_lack=1)
    advanced(world, Phase.RESUMING)
    assert "start-gang" in step(world)
    start_pods(world.later(2), first_node=0)
    mine = world.pods["llm-uid"]
    (waiting,) = [pod for pod in mine.values() if pod.node == "n1"]
    mine[waiting.uid] = msgspec.structs.replace(
        waiting, node="", phase=PodPhase.PENDING, containers=(), unschedulable="0/3 nodes are available"
    )

    step(world.later(5))
    status = only_recovery(world).status
    assert status.phase is Phase.VERIFYING
    assert names(status.message, 2, 3)


@pytest.mark.parametrize(
    "shown",
    [
        {"labels": {"karpenter.sh/nodepool": "gpu"}},
        {"taints": (Taint(key="DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule"),)},
    ],
)
def test_a_gang_that_waits_is_started_once_an_autoscaler_shows(shown: dict[str, Any]) -> None:
    """Cluster Autoscaler marks the nodes that the stopped gang has left idle."""
    world = held(struck())
    world.change_node("n0", **shown)

    assert step(world.later(60)) == ["recovery-resuming"]
    assert "start-gang" in step(world)


def test_an_autoscaler_of_nodes_without_accelerators_brings_no_places() -> None:
    world = held(struck())
    other = {"karpenter.sh/nodepool": "web"}
    world.nodes["web"] = msgspec.structs.replace(
        world.nodes["n0"],
        name="web",
        uid="web",
        labels=other,
        is_accelerated=False,
        capacity={},
        allocatable={},
    )

    assert acts(look(world)) == []


def test_where_an_autoscaler_needs_pending_pods_the_gang_is_started_all_the_same() -> None:
    world = struck()
    placement = msgspec.structs.replace(world.settings.placement, hold_without_room=False)
    world.settings = msgspec.structs.replace(world.settings, placement=placement)
    advanced(world, Phase.RESUMING)

    assert "start-gang" in step(world)


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        (
            Container(name="train", running=False, waiting=Waiting("ImagePullBackOff", "no such tag")),
            ["llm-worker-0", "n4", "ImagePullBackOff", "no such tag"],
        ),
        (Container(name="train", running=False, waiting=Waiting("ContainerCreating")), []),
        (None, ["quota"]),
    ],
)
def test_ranks_that_have_a_place_and_do_not_run_lack_no_node_and_what_keeps_them_is_told(
    pods: Container | None, why: list[str]
) -> None:
    world = recovering(machines(8, of=Template()).finding(on="n1"))
    advanced(world, Phase.RESUMING)
    assert "start-gang" in step(world)
    if pods is not None:
        start_pods(world)
        mine = world.pods["llm-uid"]
        for uid, pod in mine.items():
            mine[uid] = msgspec.structs.replace(pod, phase=PodPhase.PENDING, containers=(pods,))

    assert step(world.later(world.settings.timing.resume_deadline_s + 1)) == ["recovery-blocked"]
    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.BLOCKED, Reason.RANKS_NOT_STARTED)
    assert names(status.message, 0, 3, *why)
    assert "ContainerCreating" not in status.message, "that passes"

    world.pods["llm-uid"] = {}
    start_pods(world)
    step(world)
    assert only_recovery(world).status.phase is Phase.VERIFYING


def test_a_quarantined_node_is_told_as_such_with_the_command_that_ends_it() -> None:
    world = held(struck())

    message = only_recovery(world).status.message
    assert names(message, "n1", "xid-79", "kubectl uncordon n1")


def test_a_broken_node_that_a_limit_keeps_in_service_is_told_by_its_fault() -> None:
    world = struck()
    world.change_node("n1", unschedulable=False, taints=(), quarantine=None)
    held(world)

    message = only_recovery(world).status.message
    assert names(message, "n1", "xid-79")
    assert "uncordon" not in message


def test_ranks_that_wait_after_the_start_are_reported_within_seconds_in_the_schedulers_words() -> None:
    world = machines(8, of=Template())
    recovering(world.finding(on="n1"))
    advanced(world, Phase.RESUMING)
    assert "start-gang" in step(world)
    start_pods(world, running=False)

    assert step(world.later(2)) == []
    again = look(world).requeue_after_s
    assert again is not None
    assert again <= 3
    assert step(world.later(again)) == ["recovery-resuming"]

    status = only_recovery(world).status
    assert (status.phase, status.reason) == (Phase.RESUMING, Reason.NO_CAPACITY)
    ours, schedulers, _ = status.message.partition(next(iter(world.pods["llm-uid"].values())).unschedulable)
    assert schedulers, status.message
    assert names(ours, 0, 3)
    assert step(world) == []
