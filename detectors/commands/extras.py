"""Names the extra of the package that each command needs. A plain `pip install .` has no extra, and the
command then says which extra is missing instead of ending with a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

__all__ = ["EXTRA_OF", "NEEDED_AT_ONCE", "install", "not_installed"]

EXTRA_OF: Mapping[str, str] = {
    **dict.fromkeys(("agent", "validate", "reset-devices", "completion"), "agent"),
    **dict.fromkeys(("controller", "cleanup"), "controller"),
    **dict.fromkeys(
        (
            "status",
            "why",
            "doctor",
            "version",
            "pause",
            "resume",
            "incidents",
            "hold",
            "release",
            "undo",
            "enable",
            "checkpoints",
            "read-log",
            "recipes",
            "crds",
        ),
        "cli",
    ),
    **dict.fromkeys(("demo", "chaos", "bench"), "chaos"),
}
"""Command -> extra, as pyproject.toml names it."""
NEEDED_AT_ONCE: Mapping[str, tuple[str, ...]] = {
    "chaos": ("kubernetes", "numpy", "kubernetes_asyncio", "typer", "rich", "yaml"),
}
"""Extra -> modules that are checked before the command starts. The processes that a demo starts import these
modules, so a missing module would show only as a training that never makes a step."""
_OURS = frozenset({"detectors", "recover", "chaos"})


def install(extra: str) -> str:
    """Returns the command that installs an extra, in a clone of the repository. It names no package of an
    index: no release of Rekindle is published there, and a package of that name would be another author's
    code."""
    return f"pip install '.[{extra}]'"


def not_installed(command: str, error: ModuleNotFoundError | None = None) -> str:
    """Returns the message for a module of the command's extra that is not installed: the module that could
    not be imported, or one that the command needs at once. Empty if the extra is complete or would not
    help."""
    extra = EXTRA_OF.get(command, "")
    if error is None:
        missing = next((name for name in NEEDED_AT_ONCE.get(extra, ()) if find_spec(name) is None), "")
    else:
        missing = (error.name or "").partition(".")[0]
    if not extra or not missing or missing in _OURS:
        return ""
    return (
        f"rekindle {command}: the Python module {missing!r} is not installed. It comes with the extra "
        f"{extra!r},\nwhich this installation lacks. Install the extra in a clone of Rekindle's repository, "
        "and run the command again:\n"
        f"  {install(extra)}"
    )
