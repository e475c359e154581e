"""Adds a framework to Rekindle: `ToyJob`, whose pods are copies of one template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from detectors.text.strict import convert
from detectors.wire.resource import Resource
from recover.api.recipe_spec import Framework
from recover.k8s.pod_specs import ConditionView, OwnedMeta, PodTemplate
from recover.model import Gang, Mark
from recover.model.actions import Patch
from recover.model.job_views import terminal_of
from recover.workloads.as_written import Camel, Hazard, Limit, Severity
from recover.workloads.as_written import PodTemplate as WrittenTemplate
from recover.workloads.base import Operator, StopsAtOnce, Workload, gang_of
from recover.workloads.patches import avoiding, gang_patch, lifted, recreated_job

__all__ = ["ToyJob"]


class _Spec(msgspec.Struct, frozen=True):
    copies: int = 1
    suspend: bool = False
    pod: PodTemplate = PodTemplate()


class _Status(msgspec.Struct, frozen=True):
    conditions: list[ConditionView] = []


class _Toy(msgspec.Struct, frozen=True):
    metadata: OwnedMeta
    spec: _Spec
    status: _Status = _Status()


class _Written(Camel, frozen=True):
    retries: int = 3
    keep_seconds: int | None = None
    pod: WrittenTemplate = WrittenTemplate()

    @property
    def placed_late(self) -> str:
        return ""

    def templates(self) -> Mapping[str, WrittenTemplate]:
        return {"": self.pod}

    def template_field(self, name: str) -> str:
        return "spec.pod"

    def ends_for_good(self, gang: Gang, recreate: str) -> Iterator[Hazard]:
        if not self.retries:
            yield Hazard(
                name="no-retry",
                severity=Severity.FAILS,
                what="the first failed pod ends the toy for good",
                field="spec.retries",
                value="0",
                means="it cannot be started again",
                fix=f"spec.retries: 3; or {recreate}",
            )

    def deadlines(self) -> Sequence[Limit]:
        return []

    def removal(self) -> Limit:
        return Limit("spec.keepSeconds", self.keep_seconds)


class _WrittenToy(Camel, frozen=True):
    spec: _Written = _Written()


class ToyJob(StopsAtOnce, Workload):
    resource = Resource("toys.example", "v1", "toyjobs", "ToyJob")
    operator = Operator("Toys", "toy-controller")
    framework = Framework.JAX
    delays_starts = False
    reuses_names = True
    patches_status = True
    pod_label = "toys.example/job"
    pod_templates = ("spec", "pod")

    def parse(self, raw: bytes) -> Gang:
        toy = msgspec.json.decode(raw, type=_Toy)
        return gang_of(
            raw,
            toy.metadata,
            self.resource,
            suspended=toy.spec.suspend,
            terminal=terminal_of(toy.status.conditions, succeeded=("Done",), failed=("Broken",)),
            size=toy.spec.copies,
            templates={"": (toy.spec.pod.spec, toy.spec.copies)},
            conditions=toy.status.conditions,
        )

    def written(self, job: Mapping[str, Any], file: str, where: str) -> _Written:
        return convert(job, _WrittenToy, file=file, where=where).spec

    def stop(self, gang: Gang, mark: Mark) -> list[Patch]:
        return [gang_patch(gang, "stop-gang", self.suspending(True), mark)]

    def start(self, gang: Gang, mark: Mark, parts: Sequence[Gang] = ()) -> list[Patch]:
        affinity = avoiding(gang.templates[""].affinity, gang, mark)
        spec = {**self.suspending(False), "pod": {"spec": {"affinity": affinity}}}
        return [gang_patch(gang, "start-gang", spec, mark)]

    def lift(self, gang: Gang) -> list[Patch]:
        return [lifted(gang, {})] if gang.mark is not None else []

    def recreated(self, gang: Gang, mark: Mark) -> dict[str, Any]:
        return recreated_job(gang, self.start(gang, mark))
