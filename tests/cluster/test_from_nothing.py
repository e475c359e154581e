"""A gang survives the loss of a GPU, on real nodes, as a user experiences it from nothing: a cluster, `helm
install`, a label, a GPU that falls off the bus, `helm upgrade`, and `helm uninstall`. The test prints the
time of every phase.

kubectl, the API server's audit log and the bytes on disk show that nothing else was touched, and which
weights came out.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.rigs.torch_training.environment import TORCH
from tests.cluster.gangs import NAMESPACE
from tests.cluster.install import SYSTEM, listed
from tests.cluster.observer import everything, gang_objects, node_marks, our_writes_to_others
from tests.cluster.story import FIRST_GPU, SECOND_GPU, SPARE, SPARE_KEY, Story, begun

pytestmark = pytest.mark.real_nodes

NOT_TO_BE_CHECKED = {"nvml-health", "memory-and-matmul", "nccl-pair", "nccl-loopback"}
"""Checks that a machine without a GPU does not run."""
KEPT = ("incidents", "nodehealths", "recipes", "recoveries")


def test_a_torch_gang_outlives_its_gpu_from_helm_install_to_helm_uninstall(tmp_path: Path) -> None:
    TORCH.interpreter()  # fails with the command that makes it, before anything is brought up
    with begun(tmp_path, _tell) as story:
        bare, marks = everything(story.cluster), node_marks(story.cluster)
        undisturbed = installed_while_another_trains(story)
        in_observe_mode_nothing_is_touched(story)
        in_repair_mode_the_old_incident_is_left_alone(story)
        node = the_gang_goes_on_elsewhere_from_its_last_whole_checkpoint(story)
        the_node_is_repaired_and_the_spare_given_back(story, node, marks)
        its_weights_are_those_of_an_undisturbed_run(story, undisturbed)
        nothing_stays_behind(story, bare, marks)
        print(f"\n{story.times.table()}")


def installed_while_another_trains(story: Story) -> bytes:
    """Installs the chart with defaults. Returns the final weights of the same training, which nobody
    disturbs."""
    undisturbed = story.train_undisturbed()
    with story.times.phase("helm install, with defaults"):
        assert "mode observe" in story.release.install()
    with story.times.phase("the undisturbed training, since then"):
        return story.finished(undisturbed)


def in_observe_mode_nothing_is_touched(story: Story) -> None:
    with story.times.phase("the gang trains"):
        story.train()
    node, before = story.nodes()["gang-worker-0"], seen(story)
    since = story.cluster.plane.audit_position()

    with story.times.phase("mode observe: Xid 79 in a save, until its Incident"):
        story.strike(node, FIRST_GPU)
        story.until("an Incident", lambda: bool(story.incidents()))
    trains_on(story)

    (incident,) = story.incidents()
    assert incident["status"]["blamedNode"] == node
    assert "xid-79" in incident["status"]["summary"]
    assert outcomes(incident) >= {
        ("quarantine-node", node, "would", "ObserveMode"),
        ("restart-gang", "PyTorchJob ml/gang", "would", "ObserveMode"),
    }
    assert {outcome for _, _, outcome, _ in outcomes(incident)} == {"would"}
    assert seen(story) == before
    assert our_writes_to_others(story.cluster, since) == []
    assert story.recoveries() == []


def in_repair_mode_the_old_incident_is_left_alone(story: Story) -> None:
    before, since = seen(story), story.cluster.plane.audit_position()

    with story.times.phase("helm upgrade to mode repair"):
        story.release.upgrade({"mode": "repair"})
        story.until("a word on the old Incident", story.is_stale)
    trains_on(story)

    (incident,) = story.incidents()
    assert outcomes(incident) >= {
        ("quarantine-node", incident["spec"]["node"], "refused", "StaleEvidence"),
        ("restart-gang", "PyTorchJob ml/gang", "refused", "StaleEvidence"),
    }
    assert seen(story) == before
    # From now on Rekindle keeps the spare free, and notes whose taint it has.
    written = {write.object_ref.name for write in our_writes_to_others(story.cluster, since)}
    assert written <= {SPARE}
    assert story.recoveries() == []


def the_gang_goes_on_elsewhere_from_its_last_whole_checkpoint(story: Story) -> str:
    """Returns the node that the gang leaves."""
    before = story.nodes()
    node = before["gang-worker-0"]

    with story.times.phase("Xid 79 in a save, until the gang is stopped and its checkpoint chosen"):
        whole = story.strike(node, SECOND_GPU)
        story.until("a checkpoint chosen", lambda: "checkpoint" in story.recovery())
    chosen = story.recovery()["checkpoint"]
    # No checkpoint was saved since: new ranks need seconds to begin, and longer until their first save.
    assert (chosen["verified"], chosen["step"]) == (True, story.gang.complete()[-1])
    assert chosen["step"] >= whole
    with story.times.phase("until its first new step"):
        story.until("the recovery's end", lambda: story.recovery().get("phase") == "Succeeded")

    assert set(story.nodes().values()) == {*before.values(), SPARE} - {node}
    assert story.recovery()["resumedStep"] == chosen["step"] + 1
    log = story.cluster.kubectl("logs", "gang-master-0", f"--namespace={NAMESPACE}")
    assert f"resumed from step {chosen['step']} " in log
    assert outcomes(story.incidents()[-1]) >= {
        ("quarantine-node", node, "done", ""),
        ("lift-spare", node, "done", ""),
        ("restart-gang", "PyTorchJob ml/gang", "done", ""),
    }
    story.hurry()
    return node


def the_node_is_repaired_and_the_spare_given_back(story: Story, node: str, marks: dict[str, Any]) -> None:
    with story.times.phase("until the node is repaired and returned, and the spare given back"):
        story.until("the repair's end", lambda: story.repair().get("phase") in ("Returned", "HandedOver"))
        story.until("the spare's return", lambda: is_kept_free(story))

    story.note_repair()
    repair = story.repair()
    assert repair["phase"] == "Returned", repair
    assert [(step["kind"], step["outcome"]) for step in repair["steps"]][-2:] == [
        ("reboot", "done"),
        ("validate", "done"),
    ]
    assert {check["name"]: check["outcome"] for check in repair["checks"]} == {
        "devices": "passed",
        "kernel-log": "passed",
        **dict.fromkeys(NOT_TO_BE_CHECKED, "not-run"),
    }
    booted = story.cluster.node_status(node)["nodeInfo"]["bootID"]
    assert booted == story.cluster.nodes[node].boot_id != story.incidents()[-1]["spec"]["bootId"]
    back = node_marks(story.cluster)[node]
    assert (back["taints"], back["cordoned"], back["labels"]) == ([], False, marks[node]["labels"])
    assert SPARE in story.nodes().values(), "who runs on a spare stays there"


def its_weights_are_those_of_an_undisturbed_run(story: Story, undisturbed: bytes) -> None:
    with story.times.phase("the rest of the training"):
        weights = story.finished(story.gang)
    assert weights == undisturbed


def nothing_stays_behind(story: Story, bare: set[str], marks: dict[str, Any]) -> None:
    """Uninstalls the chart and asserts which objects stay: the definitions and their objects, which
    `crds.keep` keeps, and the namespace, which Helm never removes."""
    with story.times.phase("helm uninstall"):
        story.release.uninstall()
        story.until("the end of its last pod", lambda: not ends_later(story))
    kinds = {"NodeHealth", "Incident", "Recovery", "Recipe"}
    left = {name for name in everything(story.cluster) - bare if name.split()[0] not in kinds}
    assert left == {
        f"Namespace /{SYSTEM}",
        f"ConfigMap {SYSTEM}/kube-root-ca.crt",
        f"ServiceAccount {SYSTEM}/default",
        *(f"CustomResourceDefinition /{plural}.rekindle.dev" for plural in KEPT),
        "APIService /v1alpha1.rekindle.dev",  # Kubernetes makes one for the group of the CRDs
    }
    assert node_marks(story.cluster) == marks


def seen(story: Story) -> object:
    """Returns all that must not change while the gang trains: the gang, and the nodes except the spare."""
    nodes = {name: marks for name, marks in node_marks(story.cluster).items() if name != SPARE}
    return gang_objects(story.cluster), nodes


def trains_on(story: Story) -> None:
    """Waits until the gang has finished two more checkpoints: Rekindle would have acted on the gang by
    then."""
    saves = len(story.gang.complete())
    story.until("two more checkpoints", lambda: len(story.gang.complete()) >= saves + 2)


def ends_later(story: Story) -> list[dict[str, Any]]:
    """Returns the objects that Kubernetes itself removes after their owner, or with its last pod."""
    kinds = ("pods", "jobs.batch", "replicasets.apps", "controllerrevisions.apps", "endpointslices")
    found = listed(story.cluster, ",".join(kinds))
    return [body for body in found if body["metadata"]["namespace"] == SYSTEM]


def is_kept_free(story: Story) -> bool:
    """Whether the spare has the taint that keeps away pods without a toleration."""
    return SPARE_KEY in {taint["key"] for taint in node_marks(story.cluster)[SPARE]["taints"]}


def outcomes(incident: dict[str, Any]) -> set[tuple[str, str, str, str]]:
    """Returns action, target, outcome and reason of each recorded action."""
    records = incident["status"]["actions"]
    return {(r["action"], r["target"], r["outcome"], r.get("reason", "")) for r in records}


def _tell(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)
