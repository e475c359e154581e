"""Checks the scripts in the containers' commands for what hides the exit status of a failed training. Pure.

The status of the last command is the status of the container.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from recover.doctor.case import Case, Finding, Severity
from recover.doctor.scripts import Command, Script, read, starts
from recover.workloads.patches import asks_for_device

__all__ = ["kept"]

_TRAINERS = re.compile(
    r"python[\d.]*|torchrun|accelerate|deepspeed|mpirun|horovodrun|fleetrun|composer|lightning|colossalai"
)
_GOOD = (("true",), (":",), ("exit", "0"))
_ALWAYS_GOOD = frozenset({"echo", "printf", "true", ":", "date", "sleep"})


def kept(case: Case) -> Iterator[Finding]:
    """Reports containers that end with status 0 although the training in them has failed. If a container of a
    template requests a device, the others are its helpers."""
    for name, template in case.spec.templates().items():
        field, bodies = case.spec.template_field(name), case.gang.templates[name].containers
        training = {body.get("name") for body in bodies if asks_for_device(body)}
        for container in template.spec.containers:
            if training and container.name not in training:
                continue
            script = read(container)
            hidden = _hidden_by(script) if script is not None else None
            if script is None or hidden is None:
                continue
            what, fix = hidden
            yield Finding(
                name="exit-status-hidden",
                severity=Severity.RISKS,
                what=f"container {container.name} may end with status 0 although the training in it has "
                f"failed: {what}",
                where=case.at(f"{field}.spec.containers[{container.name}].{script.where}"),
                means="a rank that has failed counts as completed: Rekindle does not see the failure, and "
                "some controllers never start a completed rank again",
                fix=fix,
            )


def _hidden_by(script: Script) -> tuple[str, str] | None:
    """Returns what hides the status, and how to show it; None if nothing does."""
    last, set_words = script.commands[-1], [one for one in script.commands if one[:1] == ("set",)]
    if starts(last, _TRAINERS):
        return _hidden_within(last, [*script.options, *(word for one in set_words for word in one)])
    before = script.commands[-2] if len(script.commands) > 1 else ()
    is_good = last[0] in _ALWAYS_GOOD or last in _GOOD
    if not is_good or not starts(before, _TRAINERS) or "||" in before or _ends_at_error(script, set_words):
        return None
    ended = f"its script ends with `{' '.join(last[:2])}`"
    return ended, "let the training be the last command, or begin the script with `set -e`"


def _hidden_within(command: Command, options: list[str]) -> tuple[str, str] | None:
    if "||" in command:
        tail = command[len(command) - command[::-1].index("||") :]
        ignored = f"`|| {' '.join(tail)}`"
        return (f"it ends with {ignored}", f"remove {ignored}") if tail in _GOOD else None
    pipes = [number for number, word in enumerate(command) if word in ("|", "|&")]
    if pipes and command[pipes[-1] + 1 : pipes[-1] + 2] == ("tee",) and "pipefail" not in options:
        return (
            "the status of a pipe is that of `tee`",
            "begin the script with `set -o pipefail`, in a shell that knows it, such as bash",
        )
    return None


def _ends_at_error(script: Script, set_words: list[Command]) -> bool:
    words = [*script.options, *(word for one in set_words for word in one[1:])]
    return any(re.fullmatch(r"-[a-z]*e[a-z]*", word) or word == "errexit" for word in words)
