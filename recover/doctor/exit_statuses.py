"""Checks the scripts in the containers' commands for what hides the exit status of a failed training. Pure.

Only the end of a script is read: the status of the last command is the status of the container.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from recover.doctor.case import Case, Finding, Severity
from recover.workloads.as_written import Container

__all__ = ["kept"]

_SHELLS = re.compile(r"(?:.*/)?(?:ba|da|k|z)?sh")
_IGNORED = re.compile(r"\|\|\s*(?:true|:|exit\s+0)$")
_TO_TEE = re.compile(r"(?<!\|)\|&?\s*tee\b[^|;&\n]*$")
_GOOD_END = re.compile(r"(?:^|[;\n])\s*exit\s+0$")
_ENDS_AT_ERROR = re.compile(r"\bset\s+-\w*e|\bset\s+-o\s+errexit\b")


def kept(case: Case) -> Iterator[Finding]:
    """Reports containers that end with status 0 although the training in them has failed."""
    for field, template in case.templates:
        for container in template.spec.containers:
            script, options, where = _script(container)
            hidden = _hidden_by(script, options)
            if hidden is None:
                continue
            what, fix = hidden
            yield Finding(
                name="exit-status-hidden",
                severity=Severity.RISKS,
                what=f"container {container.name} may end with status 0 although the training in it has "
                f"failed: {what}",
                where=case.at(f"{field}.spec.containers[{container.name}].{where}"),
                means="a rank that has failed counts as completed: Rekindle does not see the failure, and "
                "some controllers never start a completed rank again",
                fix=fix,
            )


def _script(container: Container) -> tuple[str, Sequence[str], str]:
    """Returns the script that a shell runs in the container, the shell's options, and the field with the
    script. The script is empty if the container runs none."""
    words = [*container.command, *container.args]
    shell = next((number for number, word in enumerate(words) if _SHELLS.fullmatch(word)), len(words))
    for number in range(shell + 1, len(words) - 1):
        if re.fullmatch(r"-\w*c", words[number]):
            where = "args" if number + 1 >= len(container.command) else "command"
            return words[number + 1], words[shell + 1 : number + 1], where
    return "", (), ""


def _hidden_by(script: str, options: Sequence[str]) -> tuple[str, str] | None:
    """Returns what hides the status, and how to show it; None if nothing does."""
    ends_at_error = _ENDS_AT_ERROR.search(script) or any(re.fullmatch(r"-\w*e\w*", one) for one in options)
    lines = script.replace("\\\n", " ").splitlines()
    lines = [line for line in lines if not line.lstrip().startswith("#")]
    text = "\n".join(lines).strip().rstrip(";").rstrip()
    if ignored := _IGNORED.search(text):
        return f"its script ends with `{ignored[0]}`", "remove that end of the script"
    if _TO_TEE.search(text) and "pipefail" not in script and "pipefail" not in options:
        return (
            "the status of a pipe is that of `tee`",
            "begin the script with `set -o pipefail`, in a shell that knows it, such as bash",
        )
    if _GOOD_END.search(text) and not ends_at_error:
        return "its script ends with `exit 0`", "remove `exit 0`, or begin the script with `set -e`"
    return None
