"""The scan pod: what it is told to look for, and as whom; and every way in which it can fail to answer."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detectors.wire.contract import Edge, LogError, PodProgress
from recover.api import Phase
from recover.api.reasons import Reason
from recover.k8s.pod_specs import PodSpec
from recover.model import Container, Mount, PodPhase, Refusal, Template, VolumeKind, Waiting
from recover.model.actions import Create, Delete
from recover.model.job_views import template_of
from recover.recovery import scan_trouble
from recover.recovery.loading import unloadable
from recover.recovery.scan_pod import create_later
from recover.recovery.scan_spec import PROGRAM
from tests.acting import acts, advanced, look, only_recovery, recovering, scanned, step
from tests.builders import Worlds
from tests.facts import names
from tests.recover.recovery.phase_cases import CLAIM, choice, excluded_in, faulted


def made(world: Worlds) -> dict[str, Any]:
    """The spec of the scan pod that a recovery begins with."""
    advanced(world, Phase.STOPPING)
    (found,) = [act for act in look(world).actions if isinstance(act, Create)]
    spec: dict[str, Any] = found.body["spec"]
    return spec


def test_the_scan_is_told_the_format_and_the_marker_of_the_annotation() -> None:
    spec = made(faulted(checkpoint="/ckpt/llm;format=generic;marker=step_{step}/DONE"))

    command = spec["containers"][0]["command"]
    assert command[1:4] == ["checkpoints", "scan", "/ckpt/llm"]
    assert command[command.index("--time") + 1] == "25", "the deadline is 30 s, and the pod must start"
    assert command[-4:] == ["--format", "generic", "--marker", "step_{step}/DONE"]


def test_the_scan_is_asked_for_digests_where_the_annotation_is() -> None:
    asked = made(faulted(checkpoint="/ckpt;digests=check"))["containers"][0]["command"]

    assert "--digests" in asked
    assert "--digests" not in made(faulted(checkpoint="/ckpt"))["containers"][0]["command"]


def test_a_mount_path_that_ends_with_a_slash_is_the_same_place() -> None:
    claim = msgspec.structs.replace(CLAIM, mounts=(Mount("/ckpt/", sub_path="runs/5"),))
    world = faulted(checkpoint="/ckpt").change_gang(templates={"": Template(volumes=(claim,))})

    assert made(world)["containers"][0]["volumeMounts"][0]["subPath"] == "runs/5"


@pytest.mark.parametrize("path", ["/ckpt", "/opt/rekindle", "/usr", "/dev", "/lib/x86_64-linux-gnu"])
def test_the_volume_never_lies_over_our_program_wherever_the_job_mounts_it(path: str) -> None:
    """Else the scan pod runs what the tenant has put there, as soon as the job mounts it over our program."""
    claim = msgspec.structs.replace(CLAIM, mounts=(Mount(path),))
    world = faulted(checkpoint=f"{path}/llm").change_gang(templates={"": Template(volumes=(claim,))})

    (container,) = made(world)["containers"]

    assert container["volumeMounts"] == [
        {"name": "checkpoints", "mountPath": "/rekindle/volume", "readOnly": True}
    ]
    command = container["command"]
    assert command[:4] == ["/opt/rekindle/bin/rekindle", "checkpoints", "scan", f"{path}/llm"]
    assert command[command.index("--volume") + 1] == "/rekindle/volume"
    assert command[command.index("--mounted-at") + 1] == path


def test_the_program_is_where_the_image_has_it() -> None:
    text = (Path(__file__).parents[3] / "Dockerfile").read_text(encoding="utf-8")
    lines = text.splitlines()

    assert PROGRAM == "/opt/rekindle/bin/rekindle"
    assert "RUN python -m venv --without-pip /opt/rekindle" in lines
    assert "USER 65532:65532" in lines, "by a number, so that runAsNonRoot admits it"


def volume_of(**source: object) -> Template:
    spec = {
        "containers": [{"volumeMounts": [{"name": "v", "mountPath": "/ckpt"}]}],
        "volumes": [{"name": "v", **source}],
    }
    return template_of(msgspec.convert(spec, PodSpec))


def test_of_a_volume_s_source_only_what_says_which_it_is_reaches_the_scan() -> None:
    nfs = volume_of(nfs={"server": "s", "path": "/p", "x": 1})
    claim = volume_of(persistentVolumeClaim={"claimName": "c", "x": 1})

    worlds = [faulted(checkpoint="/ckpt").change_gang(templates={"": one}) for one in (nfs, claim)]

    assert [made(world)["volumes"] for world in worlds] == [
        [{"name": "checkpoints", "nfs": {"server": "s", "path": "/p", "readOnly": True}}],
        [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}}],
    ]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (
            {"csi": {"driver": "secrets-store.csi.k8s.io", "nodePublishSecretRef": {"name": "s"}}},
            "secrets-store.csi.k8s.io",
        ),
        ({"hostPath": {"path": "/"}}, VolumeKind.HOST_PATH),
        ({"secret": {"secretName": "s"}}, VolumeKind.SECRET),
        ({"projected": {"sources": []}}, VolumeKind.PROJECTED),
        ({"ephemeral": {}}, VolumeKind.OTHER),
    ],
)
def test_a_volume_that_may_hand_over_secrets_or_the_node_is_refused_with_a_reason_and_the_gang_starts(
    source: dict[str, object], why: str
) -> None:
    world = faulted(checkpoint="/ckpt").change_gang(templates={"": volume_of(**source)})

    advanced(world, Phase.RESUMING)

    status = only_recovery(world).status
    assert world.scans == {}
    assert status.reason == Reason.CHECKPOINT_UNVERIFIED
    assert status.checkpoint is not None
    assert names(status.checkpoint.reason, "/ckpt", why)


def test_a_folder_that_only_each_pod_knows_is_not_scanned() -> None:
    """Its place within the volume comes from the pod's own variables. The volume's root holds other jobs'."""
    spec = {
        "containers": [
            {"volumeMounts": [{"name": "v", "mountPath": "/ckpt", "subPathExpr": "$(JOB_NAME)/run"}]}
        ],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    }
    template = template_of(msgspec.convert(spec, PodSpec))
    world = faulted(checkpoint="/ckpt").change_gang(templates={"": template})

    advanced(world, Phase.RESUMING)

    found = only_recovery(world).status.checkpoint
    assert world.scans == {}
    assert found is not None
    assert names(found.reason, "subPathExpr", "$(JOB_NAME)/run")


def test_the_scan_has_limits_so_that_a_quota_on_limits_admits_it() -> None:
    (container,) = made(faulted(checkpoint="/ckpt"))["containers"]

    assert set(container["resources"]["limits"]) == {"cpu", "memory"}


def test_the_scan_runs_as_the_container_that_writes_the_checkpoints_and_with_its_groups() -> None:
    """Else a namespace that forbids root refuses it, and NFS shows it nothing."""
    world = faulted(checkpoint="/ckpt")
    sidecar = {"name": "logs", "securityContext": {"runAsUser": 7}, "volumeMounts": [{"name": "other"}]}
    trainer = {
        "name": "train",
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": True, "privileged": True},
        "volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt"}],
    }
    pods = {"runAsUser": 5, "supplementalGroups": [3000], "sysctls": [{"name": "x", "value": "y"}]}
    template = Template(volumes=(CLAIM,), security_context=pods, containers=(sidecar, trainer))
    world.change_gang(templates={"Worker": template})

    spec = made(world)

    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "supplementalGroups": [3000],
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert spec["containers"][0]["securityContext"].items() > {"runAsUser": 1000}.items()
    assert "--other-user" not in spec["containers"][0]["command"]


HOSTILE = {
    "runAsUser": 0,
    "runAsNonRoot": False,
    "privileged": True,
    "procMount": "Unmasked",
    "seccompProfile": {"type": "Unconfined"},
    "appArmorProfile": {"type": "Unconfined"},
    "seLinuxOptions": {"type": "spc_t", "user": "system_u", "role": "system_r", "level": "s0:c1,c2"},
    "capabilities": {"add": ["SYS_ADMIN"]},
    "allowPrivilegeEscalation": True,
    "windowsOptions": {"hostProcess": True},
    "sysctls": [{"name": "kernel.msgmax", "value": "1"}],
    "supplementalGroups": [7, "8", -1, True],
    "fsGroup": "9",
}


@pytest.mark.parametrize("of_container", [False, True])
def test_the_scan_fits_the_restricted_profile_whatever_the_template_says(of_container: bool) -> None:
    container = {"securityContext": HOSTILE, "volumeMounts": [{"name": "ckpt", "mountPath": "/ckpt"}]}
    template = (
        Template(volumes=(CLAIM,), containers=(container,))
        if of_container
        else Template(volumes=(CLAIM,), security_context=HOSTILE)
    )
    spec = made(faulted(checkpoint="/ckpt").change_gang(templates={"": template}))

    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "supplementalGroups": [7],
        "seLinuxOptions": {"level": "s0:c1,c2"},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert spec["containers"][0]["securityContext"] == {
        "runAsGroup": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "serviceAccountName", "hostAliases"} & set(spec)


@pytest.mark.parametrize("context", [{}, {"runAsUser": 0}, {"runAsUser": None}])
def test_a_scan_that_cannot_be_the_training_s_user_says_so_to_its_program(context: dict[str, Any]) -> None:
    """What only root may read is then unknown, and nothing older is chosen in its place. The user is the
    image's: one that we name may lie outside of the range that the namespace's admission allows. The pod
    itself has no group, for its sandbox has no user: containerd starts no pod of a group without a user."""
    template = Template(volumes=(CLAIM,), security_context={**context, "runAsGroup": 5, "fsGroup": 6})
    spec = made(faulted(checkpoint="/ckpt").change_gang(templates={"": template}))

    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "fsGroup": 6,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    own = spec["containers"][0]["securityContext"]
    assert (own["runAsGroup"], "runAsUser" in own) == (5, False)
    assert "--other-user" in spec["containers"][0]["command"]


def test_what_another_container_of_the_scan_pod_says_is_not_its_answer() -> None:
    """As one that a webhook of the namespace has added."""
    world = choosing()
    other = Container("sidecar", running=False, exit_code=0, message=choice(90))
    own = Container("scan", running=False, exit_code=0, message=choice(80))
    change(world, phase=PodPhase.SUCCEEDED, containers=(other, own))
    step(world)

    found = only_recovery(world).status.checkpoint
    assert found is not None
    assert found.step == 80


@pytest.mark.parametrize("annotation", [{}, {"checkpoint_repair": "set-aside"}])
def test_without_scheduling_gates_the_scan_is_made_once_the_old_pods_have_ended(
    annotation: dict[str, str],
) -> None:
    """An API server before 1.27 drops a gate: the scan would read, and mend, what old ranks still write."""
    world = faulted(checkpoint="/ckpt", **annotation)
    world.settings = msgspec.structs.replace(world.settings, scheduling_gates=False)
    advanced(world, Phase.STOPPING)
    assert "create-scan" not in acts(look(world))
    advanced(world, Phase.CHOOSING)

    found = look(world)

    assert acts(found) == ["create-scan"]
    (create,) = [act for act in found.actions if isinstance(act, Create)]
    assert create.body["spec"]["schedulingGates"] == []
    assert ("--repair" in create.body["spec"]["containers"][0]["command"]) is bool(annotation)


# --- a scan that does not answer --------------------------------------------------------------------------


def choosing() -> Worlds:
    """In Choosing, the scan created and its gate lifted."""
    world = faulted(checkpoint="/ckpt")
    advanced(world, Phase.CHOOSING)
    step(world)
    return world


def waits(world: Worlds, reason: str, message: str = "") -> None:
    change(world, node="n4", containers=(Container("scan", running=False, waiting=Waiting(reason, message)),))


def change(world: Worlds, **changes: object) -> None:
    ((key, pod),) = world.scans.items()
    world.scans[key] = msgspec.structs.replace(pod, **changes)


def refused(world: Worlds, words: str, *, may_pass: bool = False) -> None:
    """The API server has just said so."""
    name = next(iter(world.scans))
    world.scans.clear()
    world.refused[name] = Refusal(world.now, words, may_pass)


def why_unverified(world: Worlds) -> str:
    """One look; the recovery goes on without a verified checkpoint. Its reason."""
    assert step(world)[0] == "recovery-resuming"
    status = only_recovery(world).status
    assert status.reason == Reason.CHECKPOINT_UNVERIFIED
    assert status.checkpoint is not None
    assert not status.checkpoint.verified
    assert [c.reason for c in status.conditions if c.type == "CheckpointVerified"] == ["CheckpointUnverified"]
    return status.checkpoint.reason


@pytest.mark.parametrize(
    "words",
    [
        '403 Forbidden: pods "s" is forbidden: failed quota: q: must specify limits.cpu for: scan',
        '403 Forbidden: pods "s" is forbidden: violates PodSecurity "restricted": runAsNonRoot != true',
        '400 BadRequest: admission webhook "policy.example" denied the request: image is not signed',
    ],
)
def test_a_scan_that_admission_refuses_is_not_waited_for(words: str) -> None:
    world = choosing()
    refused(world, words)

    assert words in why_unverified(world)


def test_a_refused_creation_is_looked_at_at_once_though_no_object_changes() -> None:
    world = choosing()
    world.scans.clear()

    found = look(world)

    assert acts(found) == ["create-scan"]
    assert found.look_again_s == pytest.approx(0.1)


def test_a_quota_that_still_counts_the_old_pods_is_asked_again_for_five_seconds() -> None:
    words = '403 Forbidden: pods "s" is forbidden: exceeded quota: q, requested: pods=1, used: pods=9'
    world = choosing()
    refused(world, words)

    found = look(world)
    assert acts(found) == ["create-scan"]
    assert found.look_again_s == pytest.approx(1.0)
    assert words in why_unverified(world.later(5))


def test_what_was_refused_while_the_old_pods_ran_says_nothing_about_now() -> None:
    world = choosing()
    refused(world, "403 Forbidden: no")
    world.refused = {
        k: msgspec.structs.replace(r, at=r.at - timedelta(seconds=9)) for k, r in world.refused.items()
    }

    assert acts(look(world)) == ["create-scan"]


def test_a_webhook_that_does_not_answer_is_tried_until_the_deadline_and_named_then() -> None:
    world = choosing()
    words = "500 InternalError: failed calling webhook"
    refused(world, words, may_pass=True)

    assert acts(look(world)) == ["create-scan"]
    assert names(why_unverified(world.later(30)), 30, words)


@pytest.mark.parametrize("reason", ["InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"])
def test_a_container_that_can_never_start_is_not_waited_for(reason: str) -> None:
    world = choosing()
    kubelets = 'couldn\'t parse image name "rekindle:::x"'
    waits(world, reason, kubelets)

    assert names(why_unverified(world), reason, kubelets)


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "CreateContainerError"])
def test_an_image_that_is_not_there_is_waited_for_five_seconds(reason: str) -> None:
    world = choosing()
    kubelets = "rpc error: not found"
    waits(world, reason, kubelets)

    assert acts(look(world)) == []
    assert names(why_unverified(world.later(5)), reason, kubelets)


def test_a_volume_that_is_still_attached_elsewhere_is_named_as_the_likely_cause() -> None:
    world = choosing()
    waits(world, "ContainerCreating")

    why = why_unverified(world.later(30))

    assert names(why, 30, "n4", "ReadWriteOnce")
    assert "kubectl events -n ml --for pod/" in why


def test_a_scan_without_a_place_is_told_in_the_schedulers_words() -> None:
    world = choosing()
    schedulers = "0/8 nodes are available: 8 node(s) had volume node affinity conflict."
    change(world, unschedulable=schedulers)

    assert names(why_unverified(world.later(30)), 30, schedulers)


def test_a_scan_that_reads_too_long_is_told_so() -> None:
    world = choosing()
    change(world, node="n4", phase=PodPhase.RUNNING, containers=(Container("scan", running=True),))

    why = why_unverified(world.later(30))
    assert names(why, 30, "n4")
    assert not names(why, "ReadWriteOnce"), "its volume was mounted"


@pytest.mark.parametrize(
    ("container", "failure", "why"),
    [
        (
            Container("scan", False, exit_code=137, reason="OOMKilled"),
            "",
            ["OOMKilled", "4Gi"],
        ),
        (
            Container("scan", False, exit_code=1, reason="Error"),
            "",
            [1],
        ),
        (Container("scan", False, exit_code=128, reason="StartError"), "", [128, "StartError"]),
        (None, "Evicted: The node was low on resource: memory.", ["Evicted", "memory"]),
        (None, "", []),
    ],
)
def test_a_scan_that_ends_without_a_word_is_told_by_how_it_ended(
    container: Container | None, failure: str, why: list[object]
) -> None:
    world = choosing()
    change(world, phase=PodPhase.FAILED, failure=failure, containers=(container,) if container else ())

    assert names(why_unverified(world), *why)


def test_what_the_scan_cost_is_a_figure_of_the_recovery_whether_it_answered_or_not() -> None:
    """A gang of 4 ranks with 8 GPUs each waited for 2 s."""
    answered, silent = choosing(), choosing()
    scanned(answered, choice(80))
    change(silent, phase=PodPhase.FAILED)

    for world in (answered, silent):
        step(world.later(2))
        found = only_recovery(world).status.checkpoint
        assert found is not None
        assert (found.scan_s, found.idle_gpu_s) == (2.0, 64.0)


# --- a scan that may change what lies there ---------------------------------------------------------------


def test_a_scan_only_reads_unless_the_job_allows_a_repair() -> None:
    reading = made(faulted(checkpoint="/ckpt"))
    misspelt = made(faulted(checkpoint="/ckpt", checkpoint_repair="all"))
    world = faulted(checkpoint="/ckpt", checkpoint_repair="set-aside, tracker")
    writing = made(world)

    for spec in (reading, misspelt):
        assert spec["volumes"][0]["persistentVolumeClaim"]["readOnly"] is True
        assert spec["containers"][0]["volumeMounts"][0]["readOnly"] is True
        assert "--write" not in spec["containers"][0]["command"]
    assert "readOnly" not in spec_of_volume(writing) | writing["containers"][0]["volumeMounts"][0]
    mark = f"{only_recovery(world).metadata.name}-1"
    assert writing["containers"][0]["command"][-5:] == [
        "--repair",
        "set-aside,tracker",
        "--write",
        "--mark",
        mark,
    ]


def test_a_scan_beside_the_running_gang_never_writes_whatever_the_job_allows() -> None:
    world = faulted(checkpoint="/ckpt", checkpoint_repair="tracker,set-aside")
    recovery, settings = only_recovery(world), world.settings

    later = create_later(recovery, world.gangs["llm-uid"], world.world(), settings, ())

    assert later is not None
    assert "rekindle.dev/checkpoint-repair" not in later.body["metadata"]["annotations"]
    assert later.body["spec"]["volumes"][0]["persistentVolumeClaim"]["readOnly"] is True
    assert "--write" not in later.body["spec"]["containers"][0]["command"]


def spec_of_volume(spec: dict[str, Any]) -> dict[str, Any]:
    volume: dict[str, Any] = spec["volumes"][0]["persistentVolumeClaim"]
    return volume


def repairing() -> Worlds:
    """In Choosing; the scan may write, and does not answer."""
    world = faulted(checkpoint="/ckpt", checkpoint_repair="tracker")
    advanced(world, Phase.CHOOSING)
    step(world)
    change(world, node="n4", phase=PodPhase.RUNNING, containers=(Container("scan", running=True),))
    return world


def test_a_scan_that_may_write_has_ended_before_the_gang_may_write_there_again() -> None:
    world = repairing()

    assert step(world.later(30)) == ["recovery-choosing"]
    (removal,) = look(world).actions
    assert isinstance(removal, Delete)
    assert removal.grace_s is None, "its object stays until its kubelet says that it has ended"
    change(world, deleting_since=world.now)
    assert acts(look(world.later(5))) == []
    assert only_recovery(world).status.phase is Phase.CHOOSING
    world.scans.clear()

    assert names(why_unverified(world), "n4")


def test_a_scan_that_may_write_and_does_not_end_blocks_the_start_until_it_has_ended() -> None:
    world = repairing()
    step(world.later(30))
    change(world, deleting_since=world.now)

    assert step(world.later(180)) == ["recovery-blocked"]
    status = only_recovery(world).status
    assert status.reason == Reason.PODS_STUCK
    assert names(status.message, "n4", next(iter(world.scans.values())).name)
    assert step(world.later(3600)) == []

    world.scans.clear()
    assert [step(world) for _ in range(2)] == [["recovery-choosing"], ["recovery-resuming"]]


def test_a_scan_that_seems_not_to_be_released_yet_is_removed_all_the_same() -> None:
    world = repairing()
    change(world, node="", gated=True, phase=PodPhase.PENDING, containers=())
    (scan,) = world.scans.values()
    gate = scan_trouble.unread(scan, None)
    assert gate != scan_trouble.unread(msgspec.structs.replace(scan, gated=False), None)

    assert step(world.later(30)) == ["recovery-choosing"]
    assert step(world) == ["remove-scan"]
    assert gate in why_unverified(world)


def test_a_scan_that_may_write_is_waited_for_also_when_people_take_the_annotations_back() -> None:
    world = repairing()
    world.change_gang(annotations={})

    assert step(world) == ["recovery-choosing"]
    assert step(world) == ["remove-scan"]
    assert names(why_unverified(world), "rekindle.dev/checkpoint")


def test_what_was_repaired_and_a_tracker_that_still_names_another_are_told_in_the_recovery() -> None:
    world = repairing()
    says = "latest says 'global_step90', so the framework by itself loads that one"
    message = msgspec.json.decode(choice(80)) | {"repaired": ["moved\nit"], "tracker": says}
    scanned(world, msgspec.json.encode(message).decode())

    step(world)

    status = only_recovery(world).status
    assert status.checkpoint is not None
    assert (status.checkpoint.repaired, status.checkpoint.tracker) == (["moved it"], says)
    assert names(status.message, says, "rekindle.dev/checkpoint-repair", "tracker")


# --- a checkpoint that does not load ----------------------------------------------------------------------


def crashed_again(*, error: str = "", first_step: int | None = None) -> Worlds:
    """The second attempt is in Choosing; of the ranks that began from step 80 one ended with that error."""
    world = faulted(checkpoint="/ckpt")
    advanced(world, Phase.CHOOSING)
    step(world)
    scanned(world, choice(80))
    advanced(world, Phase.VERIFYING)
    told(world, error, first_step)
    world.scans.clear()
    recovering(world.later(30).crash(rank=0))
    assert step(world) == ["recovery-stopping"]
    advanced(world, Phase.CHOOSING)
    return world


def told(world: Worlds, error: str, first_step: int | None) -> None:
    """The agent of the first rank's node."""
    pod = next(p for p in world.pods["llm-uid"].values() if p.name == "llm-worker-0")
    health = world.health[pod.node]
    said = PodProgress(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        edge=Edge.ENDED,
        at=world.now,
        first_step=first_step,
        first_error=LogError(code=error, at=world.now) if error else None,
    )
    world.health[pod.node] = msgspec.structs.replace(
        health, status=msgspec.structs.replace(health.status, pods=[said])
    )


@pytest.mark.parametrize(
    ("error", "first_step", "excluded"),
    [("log-checkpoint", None, [80]), ("log-cuda-oom", None, []), ("log-checkpoint", 81, []), ("", None, [])],
)
def test_a_checkpoint_that_a_rank_could_not_read_is_not_tried_again_and_any_other_once_more(
    error: str, first_step: int | None, excluded: list[int]
) -> None:
    world = crashed_again(error=error, first_step=first_step)

    assert excluded_in(world) == excluded


def test_a_line_that_is_told_after_the_scan_was_made_still_counts() -> None:
    """An agent may tell of the end after the stop was written, and the scan with it."""
    world = crashed_again()
    (late,) = (w for w in only_recovery(world).witnesses if w.pod == "llm-worker-0")
    health = world.health[late.node]
    said = PodProgress(
        uid=late.uid, namespace="ml", name=late.pod, edge=Edge.ENDED, at=world.now,
        first_error=LogError(code="log-checkpoint", at=world.now),
    )  # fmt: skip
    world.health[late.node] = msgspec.structs.replace(
        health, status=msgspec.structs.replace(health.status, pods=[said])
    )

    assert step(world) == ["remove-scan"]
    (made_anew,) = [act for act in look(world).actions if isinstance(act, Create)]
    command = made_anew.body["spec"]["containers"][0]["command"]
    assert command[command.index("--exclude") + 1] == "80"


def test_what_was_passed_over_once_is_passed_over_in_every_later_attempt() -> None:
    world = crashed_again(error="log-checkpoint")
    step(world)
    scanned(world, choice(60))
    step(world)
    found = only_recovery(world)
    assert found.status.checkpoint is not None
    assert found.status.checkpoint.excluded == [80]

    later = msgspec.structs.replace(found.status, attempt=3, witnesses=[])
    assert unloadable(
        msgspec.structs.replace(found, status=later), world.gangs["llm-uid"], world.world(), world.settings
    ) == [80]
