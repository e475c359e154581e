"""The real JobSet controller beside a control plane, with the CRD and the webhooks of the release that was
built. Its webhooks supply the defaults, so a JobSet means here what it means in a cluster."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import yaml

from chaos.training.launch import free_port
from recover.k8s.kinds import JOBSETS
from tests.control_plane.build import Programs
from tests.control_plane.operator import wait_until_ready, wait_until_watched
from tests.control_plane.plane import ControlPlane, child

__all__ = ["jobset_controller"]

_OF_A_JOBSET = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}


@contextmanager
def jobset_controller(programs: Programs, plane: ControlPlane) -> Iterator[None]:
    """Runs the JobSet controller until the block ends. Raises PlaneError if the controller is not ready in
    time."""
    crd = yaml.safe_load(programs.jobset_crd.read_text(encoding="utf-8"))
    plane.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", msgspec.json.encode(crd))
    wait_until_watched(plane, JOBSETS)  # the controller tries once, and then again after 10 s
    webhook = free_port()
    probe = free_port([webhook])
    configuration = plane.folder / "jobset-config.yaml"
    configuration.write_text(yaml.safe_dump(_configuration(plane, webhook, probe)), encoding="utf-8")
    command = [
        programs.path("jobset"),
        f"-kubeconfig={plane.kubeconfig()}",
        f"-config={configuration}",
    ]
    with child(plane, command):
        wait_until_ready(plane, "jobset", f"http://127.0.0.1:{probe}/readyz")
        for hooks in yaml.safe_load_all(programs.jobset_webhooks.read_text(encoding="utf-8")):
            path = f"/apis/admissionregistration.k8s.io/v1/{hooks['kind'].lower()}s"
            plane.post(path, msgspec.json.encode(_here(hooks, plane, webhook)))
        yield


def _configuration(plane: ControlPlane, webhook: int, probe: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{probe}"},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(plane.folder)},
    }


def _here(hooks: dict[str, Any], plane: ControlPlane, port: int) -> dict[str, Any]:
    """Returns the webhook configuration for a controller outside the cluster. The webhooks for pods get only
    pods of JobSets, as in the release's own patches."""
    authority = base64.b64encode(plane.ca_file.read_bytes()).decode()
    for hook in hooks["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
        if hook["rules"][0]["resources"] == ["pods"]:
            hook["objectSelector"] = _OF_A_JOBSET
    return {**hooks, "metadata": {"name": f"jobset-{hooks['metadata']['name']}"}}
