"""The chart's policies on a real API server: each pod of a Job that has opted in reads its ConfigMap, other
pods do not, and the policies refuse nothing that was admitted without them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from detectors.client.kubeapi import ApiError, KubeApi
from detectors.wire.resource import Resource
from recover.checkpoints.scan_result import Checkpoint, ScanMessage, encode_message
from recover.cli.enable_manifest import enabled
from recover.k8s.kinds import CONFIGMAPS, JOBS, JOBSETS, NAMESPACES, PODS
from recover.model import NamespaceView
from recover.model.modes import Mode
from recover.policy.consent import OptIn, opt_in, within_mode
from tests.builders import gang
from tests.control_plane.cases import OPTED_IN, ended, indexed_job, no_trouble, uids
from tests.control_plane.clean import install_crds, wiped
from tests.control_plane.plane import ControlPlane
from tests.control_plane.rights import SYSTEM, install_rights
from tests.control_plane.stage import ANSWERED_S, NAMESPACE, RealStage, raised

pytestmark = pytest.mark.control_plane

IN_FORCE_S = 60.0
PODS_S = 90.0
CONSENT = "rekindle.dev/auto-recovery"
OURS = {"configMapRef": {"name": "llm-rekindle-job", "optional": True}}
OF_A_SET = {"configMapRef": {"name": "llm-rekindle-jobset", "optional": True}}
SILENT = "silent"
"""Name of a namespace without a label or annotation about consent."""
OPEN = "open"
"""Name of a namespace that consents."""
WORDS: dict[str, dict[str, Any]] = {
    SILENT: {},
    OPEN: {"labels": {CONSENT: "enabled"}},
    "open-by-annotation": {"annotations": {CONSENT: " Enabled"}},
    "closed": {"labels": {CONSENT: "disabled"}},
    "unsure": {"labels": {CONSENT: "enabled"}, "annotations": {CONSENT: "observe"}},
    "misspelt": {"labels": {CONSENT: "enable"}},
    "observed": {"labels": {CONSENT: "enabled"}, "annotations": {"rekindle.dev/mode": "observe"}},
}
"""Labels and annotations of the namespaces, by name."""


class Admission:
    """Asks the API server by a dry run how it would admit an object."""

    def __init__(self, api: KubeApi) -> None:
        self.api = api

    async def makes(self, resource: Resource, body: Any, namespace: str) -> Any:
        path = resource.path(namespace=namespace)
        return msgspec.json.decode(await self.api.request("POST", path, body=body, params={"dryRun": "All"}))

    async def sources(self, body: Any, namespace: str) -> list[Any]:
        """Returns the sources from which each container of that pod would read its environment."""
        admitted = await self.makes(PODS, body, namespace)
        return [container.get("envFrom") for container in admitted["spec"]["containers"]]

    async def word(self, body: Any, namespace: str = SILENT) -> str | None:
        """Returns the consent that the pods of that Job would carry, or None."""
        template = (await self.makes(JOBS, body, namespace))["spec"]["template"]
        found: str | None = template["metadata"].get("annotations", {}).get(CONSENT)
        return found


@asynccontextmanager
async def admitting(plane: ControlPlane) -> AsyncIterator[Admission]:
    """Yields the Admission once the policies are in force. Objects of the test are removed."""
    async with KubeApi(plane.credentials(), timeout_s=ANSWERED_S) as api:
        await install_crds(api)
        for name, meta in {SYSTEM: {}, **WORDS}.items():
            try:
                await api.request("POST", NAMESPACES.path(), body={"metadata": {"name": name, **meta}})
            except ApiError as error:
                if not error.exists:  # from an earlier test
                    raise
        await install_rights(api)
        admission = Admission(api)
        await in_force(admission, OPEN)
        try:
            yield admission
        finally:
            await wiped(api)


async def in_force(admission: Admission, namespace: str) -> None:
    """Waits until the policies apply in the namespace: a new policy becomes active a moment after it was
    created."""
    async with asyncio.timeout(IN_FORCE_S):
        while await admission.word(job(labels=OPTED_IN), namespace) is None:
            await asyncio.sleep(0.05)
        while await admission.sources(pod(labels=OPTED_IN), namespace) == [None]:
            await asyncio.sleep(0.05)


def job(*, template: Mapping[str, Any] | None = None, name: str = "llm", **meta: Any) -> dict[str, Any]:
    """Returns a Job. `meta` goes into its metadata, and `template` into the metadata of its pod template."""
    made: dict[str, Any] = {"spec": {"restartPolicy": "Never", "containers": [container("train")]}}
    if template is not None:
        made["metadata"] = dict(template)
    identity = {} if "generateName" in meta else {"name": name}
    return {"metadata": {**identity, **meta}, "spec": {"template": made}}


def pod(
    owner: str = "Job", api_version: str = "batch/v1", *, name: str = "llm", spec: Any = None, **meta: Any
) -> dict[str, Any]:
    """Returns a pod as a controller creates it for its object `llm`. If `owner` is empty, the pod has no
    owner."""
    of = {"apiVersion": api_version, "kind": owner, "name": name, "uid": "u", "controller": True}
    return {
        "metadata": {"generateName": "llm-0-", "ownerReferences": [of] if owner else [], **meta},
        "spec": {"containers": [container("train")], **(spec or {})},
    }


def container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "none", **more}


# --- consent ----------------------------------------------------------------------------------------------


def sayings() -> Iterator[dict[str, Any]]:
    """Yields what an object may declare: each value as label, as annotation, and as both with different
    values."""
    for label in (None, "enabled", "Enabled", "observe", "disabled", "yes", ""):
        for annotation in (None, "enabled", " ENABLED ", "observe", "Disabled", ""):
            yield {
                "labels": {CONSENT: label} if label is not None else {"a": "b"},
                "annotations": {CONSENT: annotation} if annotation is not None else {},
            }


async def test_a_pod_reads_the_environment_exactly_where_the_controller_may_restart_its_job(
    control_plane: ControlPlane,
) -> None:
    """The policy expresses in CEL the rules that recover/policy/consent.py expresses in Python."""
    async with admitting(control_plane) as admission:
        for namespace, meta in WORDS.items():
            view = NamespaceView(namespace, **meta)
            for said in sayings():
                consents = opt_in(msgspec.structs.replace(gang(), **said), view) is OptIn.ENABLED
                reads = consents and within_mode(Mode.RECOVER, view) is Mode.RECOVER

                answer = await admission.sources(pod(**said), namespace)

                assert answer == [[OURS] if reads else None], (namespace, said)


async def test_what_a_new_job_says_its_pods_say(control_plane: ControlPlane) -> None:
    async with admitting(control_plane) as admission:
        for said in sayings():
            handed = await admission.word(job(**said))

            of_pod = msgspec.structs.replace(gang(), labels={}, annotations={CONSENT: handed or "disabled"})
            of_job = msgspec.structs.replace(gang(), **said)
            assert (handed is None) == (CONSENT not in {**said["labels"], **said["annotations"]}), said
            assert (opt_in(of_pod, None) is OptIn.ENABLED) == (opt_in(of_job, None) is OptIn.ENABLED), said


async def test_a_template_keeps_a_word_of_its_own_and_may_have_no_metadata(
    control_plane: ControlPlane,
) -> None:
    own = {"annotations": {CONSENT: "disabled"}}
    async with admitting(control_plane) as admission:
        assert await admission.word(job(labels=OPTED_IN, template=own)) == "disabled"
        assert await admission.word(job(labels=OPTED_IN, generateName="llm-")) == "enabled"
        empties: tuple[dict[str, Any], ...] = ({}, {"annotations": {}}, {"annotations": None})
        for empty in empties:
            assert await admission.word(job(labels=OPTED_IN, template=empty)) == "enabled", empty


async def test_a_jobs_template_changes_in_nothing_else(control_plane: ControlPlane) -> None:
    template = {"labels": {"a": "b"}, "annotations": {"x": "y"}}
    async with admitting(control_plane) as admission:
        with_word = await admission.makes(JOBS, job(labels=OPTED_IN, template=template), SILENT)
        without = await admission.makes(JOBS, job(template=template), SILENT)

        annotations = with_word["spec"]["template"]["metadata"].pop("annotations")
        assert annotations == {**without["spec"]["template"]["metadata"].pop("annotations"), **OPTED_IN}
        for made in (with_word, without):
            labels = made["spec"]["template"]["metadata"]["labels"]
            assert labels.pop("controller-uid") == labels.pop("batch.kubernetes.io/controller-uid")
            made["spec"].pop("selector")
        assert with_word["spec"] == without["spec"]


# --- which pods, which containers -------------------------------------------------------------------------


async def test_every_container_reads_it_once_and_keeps_what_it_read_before(
    control_plane: ControlPlane,
) -> None:
    theirs = [{"secretRef": {"name": "s"}}, {"prefix": "X_", "configMapRef": {"name": "m"}}]
    own = {"name": "REKINDLE_RESUME_STEP", "value": "7"}
    containers = [
        container("train", envFrom=theirs, env=[own, own]),
        container("beside"),
        container("has-it", envFrom=[OURS, *theirs]),
        container("has-it-required", envFrom=[{"configMapRef": {"name": "llm-rekindle-job"}}]),
    ]
    first = [container("prepares"), container("sidecar", restartPolicy="Always")]
    async with admitting(control_plane) as admission:
        body = pod(spec={"containers": containers, "initContainers": first})
        spec = (await admission.makes(PODS, body, OPEN))["spec"]

        assert [c["envFrom"] for c in spec["containers"]] == [
            [*theirs, OURS],
            [OURS],
            [OURS, *theirs],
            [{"configMapRef": {"name": "llm-rekindle-job"}}],
        ]
        assert spec["containers"][0]["env"] == [own, own]
        assert [c.get("envFrom") for c in spec["initContainers"]] == [None, None]


async def test_pods_of_nothing_that_we_restart_so_are_left_alone(control_plane: ControlPlane) -> None:
    others = [
        ("ReplicaSet", "apps/v1"),
        ("DaemonSet", "apps/v1"),
        ("Job", "batch.volcano.sh/v1alpha1"),
        ("", ""),
    ]
    async with admitting(control_plane) as admission:
        for owner, api_version in others:
            body = pod(owner, api_version, labels=OPTED_IN)
            assert await admission.sources(body, OPEN) == [None], owner


async def test_odd_pods_are_answered_as_without_us(control_plane: ControlPlane) -> None:
    many = [
        container(f"c{n}", envFrom=[{"configMapRef": {"name": f"m{m}"}} for m in range(50)])
        for n in range(300)
    ]
    async with admitting(control_plane) as admission:
        assert await admission.sources(pod(name="llm.v1.2"), OPEN) == [
            [{"configMapRef": {"name": "llm.v1.2-rekindle-job", "optional": True}}]
        ]
        assert await admission.sources(pod(name="a" * 234), OPEN) == [None]
        assert {len(c) for c in await admission.sources(pod(spec={"containers": many}), OPEN)} == {51}
        empties: tuple[Any, ...] = ({"containers": []}, {"containers": None})
        for empty in empties:
            with pytest.raises(ApiError, match=r"spec.containers: Required value"):
                await admission.makes(PODS, pod(spec=empty), OPEN)


async def test_the_pods_of_a_jobset_read_the_jobsets_environment(jobsets: ControlPlane) -> None:
    """The namespace consents, or the JobSet's own pod template does, or rekindle enable has written the
    source into the template."""
    from_command = enabled([jobset()], "jobset.yaml").documents[0]
    consents = {"annotations": OPTED_IN}
    async with admitting(jobsets) as admission:
        for namespace, body in ((OPEN, jobset()), (SILENT, jobset(consents)), ("misspelt", from_command)):
            await admission.api.request("POST", JOBSETS.path(namespace=namespace), body=body)

            pods = await made(admission.api, namespace, 2)

            assert [c["envFrom"] for p in pods for c in p["spec"]["containers"]] == [[OF_A_SET], [OF_A_SET]]


def jobset(template: Mapping[str, Any] | None = None) -> dict[str, Any]:
    replicated = {"name": "ranks", "replicas": 2, "template": {"spec": job(template=template)["spec"]}}
    identity = {"apiVersion": JOBSETS.api_version, "kind": JOBSETS.kind, "metadata": {"name": "llm"}}
    return {**identity, "spec": {"replicatedJobs": [replicated]}}


async def made(api: KubeApi, namespace: str, count: int) -> Sequence[Any]:
    async with asyncio.timeout(PODS_S):
        while True:
            found = msgspec.json.decode(await api.request("GET", PODS.path(namespace=namespace)))["items"]
            if len(found) == count:
                return list(found)
            await asyncio.sleep(0.05)


# --- the whole way ----------------------------------------------------------------------------------------


async def test_a_resumed_job_whose_template_says_nothing_of_it_is_told_where_to_resume(
    control_plane: ControlPlane,
) -> None:
    """The API server generates the job's name, so nobody could have written the name of the ConfigMap into
    the template."""
    chosen = Checkpoint(step=90, path="step-90", format="rekindle-sharded", complete=True, reason="", bytes=1)
    volumes = [{"name": "checkpoints", "nfs": {"server": "nfs.example", "path": "/llm"}}]
    body = indexed_job("", annotations={"rekindle.dev/checkpoint": "/checkpoints"}, pod={"volumes": volumes})
    body["metadata"]["generateName"] = "llm-"
    mount = {"name": "checkpoints", "mountPath": "/checkpoints"}
    body["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [mount]
    async with raised(control_plane, nodes=3, settings=["mode=recover"], agents=0) as stage:
        await in_force(Admission(stage.api), NAMESPACE)
        name = (await stage.create(JOBS, body, NAMESPACE))["metadata"]["name"]
        old = await stage.running(name, 2)
        for one in old:
            await stage.steps(one, first=1, last=100)
        await stage.xid_79(old[0]["spec"]["nodeName"])
        scan = await stage.until("running scan pod", lambda: running_scan(stage))
        await stage.end(scan, exit_code=0, message=encode_message(ScanMessage(chosen=chosen, found=1)))
        new = await stage.running(name, 2, but=uids(old))
        told = (await stage.get(CONFIGMAPS, f"{name}-rekindle-job", NAMESPACE))["data"]
        await stage.steps(new[0], first=91, last=91)
        await ended(stage, name, "Succeeded")

        read = [source for p in new for c in p["spec"]["containers"] for source in c["envFrom"]]
        assert read == [{"configMapRef": {"name": f"{name}-rekindle-job", "optional": True}}] * 2
        assert (told["REKINDLE_RESUME_FROM"], told["REKINDLE_RESUME_STEP"]) == ("/checkpoints/step-90", "90")
        assert told["REKINDLE_RECOVERY"].startswith(f"job-{name}-")
        assert "envFrom" not in scan["spec"]["containers"][0]
        no_trouble(stage)

        asked = {"propagationPolicy": "Background"}
        await stage.api.request("DELETE", JOBS.path(name, NAMESPACE), body=asked)
        await stage.until("ConfigMap gone with its job", lambda: without_environment(stage))


async def without_environment(stage: RealStage) -> bool:
    names = [found["metadata"]["name"] for found in await stage.all(CONFIGMAPS, NAMESPACE)]
    return not any("-rekindle-" in name for name in names)


async def running_scan(stage: RealStage) -> Any:
    pods = await stage.all(PODS, NAMESPACE, "rekindle.dev/scan-of")
    return next((p for p in pods if p["status"]["phase"] == "Running"), None)
