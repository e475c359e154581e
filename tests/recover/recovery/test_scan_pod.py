"""Tests the scan pod: which instructions it gets, and as which user it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from recover.api import Phase
from recover.api.reasons import Reason
from recover.k8s.pod_specs import PodSpec
from recover.model import Container, Mount, PodPhase, Template, VolumeKind
from recover.model.actions import Create
from recover.model.job_views import template_of
from recover.recovery.scan_spec import PROGRAM
from tests.acting import acts, advanced, look, only_recovery, step
from tests.facts import names
from tests.recover.recovery.phase_cases import CLAIM, choice, faulted
from tests.recover.recovery.scan_cases import change, choosing, made


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
    """Otherwise the job could mount the volume over Rekindle's own program, and the scan pod would run the
    tenant's files."""
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
        ({"ephemeral": {}}, VolumeKind.EPHEMERAL),
        ({"cephfs": {}}, VolumeKind.OTHER),
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
    """The folder's place within the volume comes from the pod's own variables. The volume's root also has
    the folders of other jobs."""
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


def test_webhooks_that_add_containers_volumes_and_variables_to_pods_leave_the_scan_out() -> None:
    """Otherwise the policy of the chart refuses the scan pod, and no checkpoint is verified."""
    world = faulted(checkpoint="/ckpt")
    advanced(world, Phase.STOPPING)
    (found,) = [act for act in look(world).actions if isinstance(act, Create)]
    metadata = found.body["metadata"]

    assert metadata["labels"].items() >= {
        ("sidecar.istio.io/inject", "false"),
        ("kuma.io/sidecar-injection", "disabled"),
        ("admission.datadoghq.com/enabled", "false"),
    }
    assert metadata["annotations"].items() >= {
        ("linkerd.io/inject", "disabled"),
        ("consul.hashicorp.com/connect-inject", "false"),
        ("dynatrace.com/inject", "false"),
        ("oneagent.dynatrace.com/inject", "false"),
    }


def test_the_scan_runs_where_nodes_have_the_architecture_of_the_nodes_of_the_gang() -> None:
    """Its image may have only this architecture. On EKS, for example, everything without a GPU often runs on
    arm64."""
    world = faulted(checkpoint="/ckpt")
    for name in world.nodes:
        world.change_node(name, labels={"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"})
    for name, system, machine in (("n6", "linux", "arm64"), ("n7", "windows", "amd64")):
        labels = {"kubernetes.io/os": system, "kubernetes.io/arch": machine}
        world.change_node(name, labels=labels, is_accelerated=False)

    required = made(world)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]

    (term,) = required["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
    ]


def test_the_scan_has_limits_so_that_a_quota_on_limits_admits_it() -> None:
    (container,) = made(faulted(checkpoint="/ckpt"))["containers"]

    assert set(container["resources"]["limits"]) == {"cpu", "memory"}


def test_the_scan_runs_as_the_container_that_writes_the_checkpoints_and_with_its_groups() -> None:
    """Otherwise a namespace that forbids root refuses the scan pod, or NFS shows it no files."""
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
    """Files that only root may read are then unknown, and the scan chooses nothing older in their place.
    The user is the image's, because a user that Rekindle names may be outside the range that the
    namespace's admission allows. The pod itself has no group, because its sandbox has no user: containerd
    starts no pod of a group without a user."""
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
    """For example, a webhook of the namespace may have added a container."""
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
    """An API server before 1.27 drops a gate: the scan would read, and repair, files that old ranks still
    write."""
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
