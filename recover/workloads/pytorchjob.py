"""kubeflow.org/v1 PyTorchJob (training-operator v1).

Suspend is the uncounted restart: deleting pods fails a job of restart policy Never for good. The template may
be edited at any time and counts for later pods, so the resume patch carries affinity and the env source too.
(training-operator 1.9.4, measured.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from recover.actions import Patch
from recover.model import Gang, Mark, Template
from recover.resources import PYTORCHJOBS
from recover.workloads.base import StopsAtOnce, gang_of
from recover.workloads.patches import avoiding, changes_affinity, gang_patch, made_anew, reading_environment
from recover.workloads.wire import ConditionView, OwnedMeta, PodTemplate, terminal_of

__all__ = ["PyTorchJob"]


class _Replica(msgspec.Struct, rename="camel", frozen=True):
    replicas: int = 1
    template: PodTemplate = PodTemplate()


class _RunPolicy(msgspec.Struct, frozen=True):
    suspend: bool = False


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    pytorch_replica_specs: dict[str, _Replica]
    run_policy: _RunPolicy = _RunPolicy()


class _Status(msgspec.Struct, frozen=True):
    conditions: list[ConditionView] = []


class _PyTorchJob(msgspec.Struct, frozen=True):
    metadata: OwnedMeta
    spec: _Spec
    status: _Status = _Status()


class PyTorchJob(StopsAtOnce):
    resource = PYTORCHJOBS
    delays_starts = False
    reuses_names = True

    def parse(self, raw: bytes) -> Gang:
        job = msgspec.json.decode(raw, type=_PyTorchJob)
        replicas = job.spec.pytorch_replica_specs
        return gang_of(
            raw,
            job.metadata,
            self.resource,
            suspended=job.spec.run_policy.suspend,
            terminal=terminal_of(job.status.conditions, succeeded="Succeeded", failed=("Failed",)),
            size=sum(replica.replicas for replica in replicas.values()),
            templates={name: replica.template.spec for name, replica in replicas.items()},
        )

    def stop(self, gang: Gang, mark: Mark) -> list[Patch]:
        return [gang_patch(gang, "stop-gang", {"runPolicy": {"suspend": True}}, mark)]

    def start(self, gang: Gang, mark: Mark, parts: Sequence[Gang] = ()) -> list[Patch]:
        changes = {
            name: {"template": {"spec": _changed(template, gang, mark)}}
            for name, template in gang.templates.items()
        }
        spec = {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": changes}
        return [gang_patch(gang, "start-gang", spec, mark)]

    def anew(self, gang: Gang, mark: Mark) -> dict[str, Any]:
        return made_anew(gang, self.start(gang, mark))


def _changed(template: Template, gang: Gang, mark: Mark) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if template.containers:
        spec["containers"] = reading_environment(template.containers, gang)
    if changes_affinity(gang, mark):
        spec["affinity"] = avoiding(template.affinity, gang, mark)
    return spec
