"""Known issues of workloads that Rekindle does not change: it tells their owners once what to change."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from detectors.wire.training import Edge
from recover.api import GangRef, Outcome
from recover.api.reasons import Reason
from recover.api.recipe_spec import Match
from recover.k8s.kinds import PODS
from recover.model import Outsider, Pod, PodPhase, decode
from recover.model.actions import Emit
from recover.model.modes import Mode, Modes, begun
from recover.policy.settings import Settings
from recover.recipes.load import parse
from recover.runtime.observe import Observer
from recover.triage.advice import advise
from tests.acting import acts, apply, recovering
from tests.builders import NOW, Worlds, cluster, gang
from tests.facts import names
from tests.recover.recovery.test_known_issues import OUT_OF_MEMORY, TOO_OLD, template
from tests.recover.scripted import Scripted

DEPLOYMENT = GangRef(
    api_version="apps/v1", kind="ReplicaSet", namespace="ml", name="vllm-5d8f", uid="replicaset-uid"
)
CONTAINER = {
    "name": "server",
    "image": "vllm/vllm-openai:v0.6",
    "resources": {"limits": {"nvidia.com/gpu": "1"}},
}


def serving(said: str = TOO_OLD, *, mode: Mode = Mode.RECOVER) -> Worlds:
    """Returns two pods of a Deployment that have printed this."""
    world = cluster(nodes=4, mode=mode)
    pods = {}
    for number in range(2):
        pod = Pod(
            namespace="ml",
            name=f"vllm-5d8f-{number}",
            uid=f"vllm-{number}-uid",
            version="1",
            owner_uid=DEPLOYMENT.uid,
            owner_kind=DEPLOYMENT.kind,
            labels={"pod-template-hash": "5d8f"},
            node=f"n{number}",
            phase=PodPhase.RUNNING,
            created=NOW - timedelta(hours=1),
            accelerators=1,
            outsider=Outsider(owner=DEPLOYMENT, containers=(CONTAINER,)),
        )
        pods[pod.uid] = pod
        world.progress(pod, Edge.ENDED, at=NOW)
    world.pods[DEPLOYMENT.uid] = pods
    return world.says_of(pods.values(), said)


def test_the_owner_is_told_the_exact_change_once_and_nothing_of_it_is_written_to_the_workload() -> None:
    world = serving()

    decided = world.decide()

    incident = decided.incident
    (refused,) = incident.status.actions
    assert (refused.action, refused.outcome, refused.reason) == (
        "apply-recipe",
        Outcome.REFUSED,
        Reason.UNSUPPORTED,
    )
    assert "--dtype=half" in refused.message
    assert names(incident.status.summary, "Deployment", "ml/vllm")
    assert incident.status.victims == [DEPLOYMENT]
    told = [a for a in decided.plan.actions if isinstance(a, Emit)]
    assert {a.regarding["kind"] for a in told} == {"ReplicaSet", "Pod"}
    assert {type(a).__name__ for a in decided.plan.actions} == {"Create", "Emit"}

    apply(world, decided.plan)
    assert world.decide().plan.actions == ()


def test_the_incident_closes_when_the_pods_have_gone() -> None:
    world = recovering(serving())
    world.pods[DEPLOYMENT.uid].clear()

    assert acts(world.decide().plan) == ["close-incident"]


@pytest.mark.parametrize("cause", ["fleet-brake", "quarantine-limit"])
@pytest.mark.parametrize("fault", ["", "-application", "-device-lost"])
def test_an_advice_to_an_owner_that_is_named_like_a_brake_stops_nothing_and_stays_open(
    cause: str, fault: str
) -> None:
    """Anybody who may create a pod in one namespace chooses the pod's name, and its output."""
    world = serving()
    for uid, pod in world.pods[DEPLOYMENT.uid].items():
        named = Outsider(
            owner=msgspec.structs.replace(DEPLOYMENT, name=f"{cause}{fault}"), containers=(CONTAINER,)
        )
        world.pods[DEPLOYMENT.uid][uid] = msgspec.structs.replace(pod, outsider=named)
    recovering(world)
    (advice,) = world.incidents
    assert advice.startswith(cause)

    decided = world.finding(on="n3").decide()

    assert decided.cordons == ["n3"]
    assert "close-incident" not in acts(decided.plan)


def test_text_of_a_log_never_stands_in_the_incident() -> None:
    incident = serving().decide().incident

    assert "Tesla" not in msgspec.json.encode(incident).decode()


@pytest.mark.parametrize(
    ("opted_in", "mode", "reason"),
    [(False, Mode.RECOVER, Reason.NOT_OPTED_IN), (True, Mode.OBSERVE, Reason.OBSERVE_MODE)],
)
def test_a_gang_that_may_not_be_touched_gets_the_advice_too(
    opted_in: bool, mode: Mode, reason: Reason
) -> None:
    asked = template({"tencent.com/vcuda-core": "30"})
    world = cluster(nodes=8, mode=mode).running(gang(opted_in=opted_in, templates={"Worker": asked}))
    world.says(OUT_OF_MEMORY, rank=2)

    refused = [a for i in world.decide().incidents for a in i.status.actions if a.action == "apply-recipe"]

    assert [a.reason for a in refused] == [reason]
    assert "FLAGS_allocator_strategy=naive_best_fit" in refused[0].message


def test_a_gang_that_will_be_recovered_is_left_to_its_recovery() -> None:
    asked = template({"tencent.com/vcuda-core": "30"})
    world = cluster(nodes=8).running(gang(templates={"Worker": asked})).says(OUT_OF_MEMORY, rank=2)

    assert world.decide().plan.actions == ()


@pytest.mark.parametrize("owned", [True, False])
def test_a_pod_of_no_gang_is_read_with_its_owner_and_what_it_asks(owned: bool) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u1", "controller": True}
    metadata: dict[str, Any] = {"name": "p", "namespace": "ml", "uid": "u2"}
    metadata |= {"ownerReferences": [owner]} if owned else {}
    raw = msgspec.json.encode({"metadata": metadata, "spec": {"containers": [{"name": "side"}, CONTAINER]}})

    found = decode.outsider(raw)

    kind, name, uid = ("ReplicaSet", "web", "u1") if owned else ("Pod", "p", "u2")
    assert (found.owner.kind, found.owner.name, found.owner.uid) == (kind, name, uid)
    assert found.containers == ({name: CONTAINER[name] for name in ("image", "resources")},)


def test_a_recipe_that_fits_without_any_line_tells_nobody_and_harms_no_look() -> None:
    world = serving()
    asks = msgspec.convert({"allOf": [{"request": {"name": "nvidia.com/gpu", "is": "requested"}}]}, Match)
    of_none = msgspec.structs.replace(world.recipes["vllm-bfloat16"], name="on-a-gpu", match=asks)
    world.recipes = {"on-a-gpu": of_none, **world.recipes}

    ((advice,), _) = advise(world.world(), world.health, world.now)

    assert advice.recipe.name == "vllm-bfloat16"


def test_the_owner_of_a_volcano_job_is_advised_although_its_kind_is_called_job_too() -> None:
    observer = Observer(Scripted(), Settings(), lambda: None)
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "llm", "uid": "u1"}
    metadata: dict[str, Any] = {"name": "llm-worker-0", "namespace": "ml", "uid": "p1"}
    metadata |= {"resourceVersion": "7", "ownerReferences": [{**owner, "controller": True}]}

    observer.absorb(PODS, msgspec.json.encode({"metadata": metadata, "spec": {"containers": [CONTAINER]}}))

    (pod,) = observer.world(Modes(begun(Mode.OBSERVE, NOW))).pods_of["u1"].values()
    assert pod.outsider is not None
    assert (pod.outsider.owner.api_version, pod.outsider.owner.name) == (owner["apiVersion"], "llm")


def test_of_replicas_of_one_owner_what_they_ask_is_kept_once() -> None:
    """Kubernetes gives each pod a mount with another name, which no recipe reads."""
    observer = Observer(Scripted(), Settings(), lambda: None)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u1", "controller": True}
    for number in range(2):
        mounts = [{"name": f"kube-api-access-{number}", "mountPath": "/var/run/secrets"}]
        metadata: dict[str, Any] = {"name": f"web-{number}", "namespace": "ml", "uid": f"web-{number}-uid"}
        metadata |= {"resourceVersion": "7", "ownerReferences": [owner]}
        spec = {"containers": [{**CONTAINER, "volumeMounts": mounts}]}
        observer.absorb(PODS, msgspec.json.encode({"metadata": metadata, "spec": spec}))

    first, second = observer.world(Modes(begun(Mode.OBSERVE, NOW))).pods_of["u1"].values()

    assert first.outsider is not None
    assert first.outsider is second.outsider


@pytest.mark.parametrize(
    "forged",
    [
        *({"name": name} for name in ("My Server", "a" * 254, "-", "", "web\n")),
        *({"uid": uid} for uid in ("u" * 65, "", "u0-\x1b[2Jx\n", "one two", "u\u202e")),
        {"kind": "K" * 64},
        {"kind": "Node worker-1 has failed, drain it at once.\nPyTorchJob ml/gang"},
        *({"kind": kind} for kind in ("", "\x1b[31mJob", "Job\n", "Jöb", "ml/Job")),
        *({"apiVersion": version} for version in ("", "v1\n", "no such/v1", "a/b/c", "Apps/v1", "a" * 128)),
    ],
    ids=repr,
)
def test_an_owner_that_cannot_exist_names_no_object_of_ours(forged: dict[str, str]) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u1", "controller": True}
    metadata = {"name": "p", "namespace": "ml", "uid": "u2", "ownerReferences": [owner | forged]}

    found = decode.outsider(msgspec.json.encode({"metadata": metadata, "spec": {"containers": [CONTAINER]}}))

    assert str(found.owner) == "Pod ml/p"
    assert (found.owner.api_version, found.owner.uid) == ("v1", "u2")


@pytest.mark.parametrize(
    "owner",
    [
        {"apiVersion": "v1", "kind": "ReplicationController"},
        {"apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet"},
        {"apiVersion": "a.example/v1", "kind": "My-Kind2"},
        {"apiVersion": "v1", "kind": "Node", "name": "gpu-7.rack-1.example", "uid": "gpu-7.rack-1"},
    ],
)
def test_an_owner_of_any_kind_that_kubernetes_takes_is_named(owner: dict[str, str]) -> None:
    reference = {"name": "web", "uid": "5f0d5e6c-2a43-4a4b-9d7e-1a2b3c4d5e6f", "controller": True, **owner}
    metadata = {"name": "p", "namespace": "ml", "uid": "u2", "ownerReferences": [reference]}

    found = decode.outsider(msgspec.json.encode({"metadata": metadata, "spec": {"containers": [CONTAINER]}}))

    assert (found.owner.api_version, found.owner.kind) == (owner["apiVersion"], owner["kind"])
    assert (found.owner.name, found.owner.uid) == (reference["name"], reference["uid"])


def test_a_pod_that_claims_a_gang_of_another_namespace_says_nothing_of_it() -> None:
    asked = template({"tencent.com/vcuda-core": "30"})
    world = cluster(nodes=8).running(gang(opted_in=False, templates={"Worker": asked}))
    forged = {
        uid: msgspec.structs.replace(pod, namespace="somebody") for uid, pod in world.pods["llm-uid"].items()
    }
    world.pods["llm-uid"] = forged
    world.says(OUT_OF_MEMORY, rank=2)

    assert advise(world.world(), world.health, world.now) == ([], [])


def test_a_line_that_its_agent_does_not_take_for_an_issue_brings_no_advice() -> None:
    world = serving()
    for name, health in world.health.items():
        pods = [
            msgspec.structs.replace(
                p, known_lines=[msgspec.structs.replace(x, issue=False) for x in p.known_lines]
            )
            for p in health.status.pods
        ]
        status = msgspec.structs.replace(health.status, pods=pods)
        world.health[name] = msgspec.structs.replace(health, status=status)

    assert world.decide().plan.actions == ()


def test_a_namespace_full_of_new_pods_with_an_issue_does_not_crowd_out_all_other_incidents() -> None:
    world = cluster(nodes=60)
    for number in range(60):
        ref = msgspec.structs.replace(DEPLOYMENT, name=f"bare-{number}", uid=f"bare-{number}-uid")
        pod = Pod(
            namespace="ml",
            name=ref.name,
            uid=ref.uid,
            version="1",
            owner_uid=ref.uid,
            node=f"n{number}",
            phase=PodPhase.RUNNING,
            accelerators=1,
            outsider=Outsider(owner=ref, containers=(CONTAINER,)),
        )
        world.pods[ref.uid] = {pod.uid: pod}
        world.progress(pod, Edge.ENDED, at=NOW)
        world.says_of([pod], TOO_OLD)

    recovering(world)

    assert len(world.incidents) == 50
    assert world.decide().plan.actions == ()


OWN = """
name = "own"
title = "A recipe that repeats what it has read"
source = "a test of ours"

[[match.allOf]]
log = "the secret token is {token}, needed {size:size}"

[change]
hold = "always"
advise = "Hide {token}, ask for {size}."
"""


def test_what_a_users_recipe_captures_of_a_log_reaches_no_incident_but_figures_do() -> None:
    world = serving("the secret token is hunter2, needed 24 GiB")
    world.recipes = {"own": parse(OWN, "own.toml")}

    (refused,) = world.decide().incident.status.actions

    assert "hunter2" not in refused.message
    assert names(refused.message, "{token}", "24 GiB")
