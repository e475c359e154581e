"""Gathers what the API objects show about a failed gang, as Evidence for match.py. Pure; for
recovery/known_issues.py, triage/advice.py and doctor/issues_ahead.py.

All of it has the origin `tenant`: logs, exit codes, requests of the job's own template. Such evidence may
move and change that tenant's gang, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

import msgspec

from detectors.wire.contract import key
from detectors.wire.training import PodProgress
from recover.api import Blame, Cause, Recovery
from recover.api.recipe_spec import Framework
from recover.diagnose.verdicts import OUTSIDE
from recover.diagnose.witnesses import reports_of
from recover.model import Gang, Node, World
from recover.model.containers import TrainingContainer, read_container, requests_of, training
from recover.recipes.match import Evidence, LogLine
from recover.workloads import WORKLOADS

__all__ = ["CUDA_RUNTIME", "VGPU_BASELINE", "evidences", "lines_of", "of_container"]

VGPU_BASELINE = key("vgpu-baseline")
"""Label on a node: the CUDA version for which the node's GPU-sharing layer was built."""
CUDA_RUNTIME = key("cuda-runtime")
"""Annotation on a job: the CUDA version of its image, if the template does not show it."""

_OOM_KILLED = "oom-killed"
_OUTLIVED = timedelta(seconds=60)
"""Time for which training must continue after a line, so that the line has not ended the training. A rank
that waits for the failed one makes no steps for this long."""
_KINDS = {
    **{workload.resource.kind: workload.framework for workload in WORKLOADS},
    "JAXJob": Framework.JAX,
}
"""Framework of each kind of job. The table includes kinds for which Rekindle only gives advice."""
_WORDS = (
    ("vllm", Framework.VLLM),
    ("paddle", Framework.PADDLE),
    ("mindspore", Framework.MINDSPORE),
    ("tensorflow", Framework.TENSORFLOW),
    ("torch", Framework.PYTORCH),
    ("jax", Framework.JAX),
)
"""Words in a container's image, command or arguments, each with its framework. A framework comes before the
framework on which it builds."""


def evidences(world: World, gang: Gang, recovery: Recovery) -> list[Evidence]:
    """Returns what is known of this attempt's failure, once for each different training container of the
    gang's templates: a recipe matches if it matches one of them.

    If something outside the program explains the failure, for example a fault of a node, the logs and exit
    codes are no evidence: they show only how the program met its end.
    """
    progress = reports_of(world, recovery.witnesses)
    witness = next(iter(recovery.witnesses), None)
    node = world.nodes.get(witness.node) if witness is not None else None
    attempt = recovery.status.attempt
    causes = [cause for cause in recovery.status.causes if cause.attempt == attempt]
    # An attempt may have no Incident of its own, for example after a start without any step. It continues
    # under an earlier Incident.
    before = {cause.incident for cause in recovery.status.causes if cause.attempt < attempt}
    incidents = [world.incidents.get(cause.incident) for cause in causes if cause.incident not in before]
    codes = [seen.code for incident in incidents if incident for seen in incident.status.evidence]
    errors = [p.first_error.code for p in progress if p.first_error]
    is_own = not causes or any(map(_may_be_own, causes))
    seen = Evidence(
        lines=tuple(_judged_lines(progress) if is_own else ()),
        exit_codes=frozenset(_exit_codes(codes) if is_own else ()),
        faults=frozenset(cause.fault for cause in causes),
        signals=frozenset([*codes, *(errors if is_own else ())]),
    )
    free = next((p.free_device_bytes for p in progress if p.free_device_bytes is not None), None)
    containers = {
        msgspec.json.encode(found): found
        for template in gang.templates.values()
        for found in training(template.containers)
    }
    return [
        of_container(found, seen, node, kind=gang.ref.kind, annotations=gang.annotations, free_bytes=free)
        for found in containers.values()
    ]


def _may_be_own(cause: Cause) -> bool:
    """Whether the program itself may have caused the failure."""
    return cause.blame is not Blame.NODE and cause.error not in OUTSIDE


def lines_of(progress: Iterable[PodProgress]) -> Iterator[LogLine]:
    """Yields the log lines of these containers that agents have published."""
    for container in progress:
        for line in container.known_lines:
            yield LogLine(text=line.text, file=container.name)


def _judged_lines(progress: Sequence[PodProgress]) -> list[LogLine]:
    """Returns the lines of one gang. Lines after which the gang has continued to train come last."""
    stepped_at = max((one.last_step_at for one in progress if one.last_step_at is not None), default=None)
    lines = []
    for container in progress:
        for known, line in zip(container.known_lines, lines_of([container]), strict=True):
            outlived = stepped_at is not None and stepped_at - known.at > _OUTLIVED
            lines.append(msgspec.structs.replace(line, outlived=outlived))
    return sorted(lines, key=lambda line: line.outlived)


def of_container(
    container: Mapping[str, object],
    seen: Evidence,
    node: Node | None,
    *,
    kind: str = "",
    annotations: Mapping[str, str] = {},
    free_bytes: int | None = None,
) -> Evidence:
    """Returns `seen` with the facts from one container of a pod template and from its node."""
    found = read_container(container)
    env = {variable.name: variable.value for variable in found.env}
    labels = dict(node.labels) if node is not None else {}
    facts = {
        "cuda.runtime": annotations.get(CUDA_RUNTIME, "") or env.get("CUDA_VERSION", ""),
        "vgpu.baseline": labels.get(VGPU_BASELINE, ""),
        "gpu.memory.free": f"{free_bytes}B" if free_bytes is not None else "",
    }
    return msgspec.structs.replace(
        seen,
        framework=_framework(found, kind),
        requests=requests_of(found),
        env=env,
        labels=labels,
        facts={name: value for name, value in facts.items() if value},
    )


def _framework(container: TrainingContainer, kind: str) -> Framework | None:
    words = " ".join([container.image, *container.command, *container.args]).lower()
    named = next((framework for word, framework in _WORDS if word in words), None)
    return named or _KINDS.get(kind)


def _exit_codes(codes: Iterable[str]) -> Iterator[int]:
    for code in codes:
        number = code.removeprefix("exit-")
        if code == _OOM_KILLED:
            yield 137
        elif number != code and number.isdecimal():
            yield int(number)
