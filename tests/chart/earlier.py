"""The version from which people upgrade, as it was committed: its chart, and its controller as a process."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import msgspec
import pytest

__all__ = ["COMMIT", "Earlier", "laid"]

COMMIT = "18e3ed7a9a696a26e5e3135f3ffea88ec61875fc"
"""The newest commit before the last change of CRDs, annotations or the chart. After such a change this value
must be updated."""
_REPOSITORY = Path(__file__).parents[2]
_PARTS = ("detectors", "recover", "charts", "pyproject.toml")


class Earlier(msgspec.Struct, frozen=True):
    """The earlier version. Its files are in `folder`; the libraries are those of this working tree's
    environment."""

    folder: Path

    @property
    def chart(self) -> Path:
        return self.folder / "charts" / "rekindle"

    @property
    def environment(self) -> dict[str, str]:
        """Environment in which its packages are found before those of this working tree."""
        return {"PYTHONPATH": str(self.folder)}

    @property
    def controller(self) -> list[str]:
        """Command that starts the controller, without arguments. Console scripts and entry points belong to
        this working tree."""
        project = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        module, _, function = project["entry-points"]["rekindle.commands"]["controller"].partition(":")
        return self.python(f"import sys; from {module} import {function}; sys.exit({function}(sys.argv[1:]))")

    def python(self, program: str) -> list[str]:
        return [sys.executable, "-P", "-c", program]

    def imports(self, package: str) -> Path:
        """Returns the file that a process of the earlier version loads for that package."""
        command = self.python(f"import {package}; print({package}.__file__)")
        environment = {**os.environ, **self.environment}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return Path(done.stdout.strip())


def laid(folder: Path) -> Earlier:
    """Unpacks the earlier version. Skips the test if the clone does not have the commit; with CI=true that is
    a failure."""
    command = ["git", "-C", str(_REPOSITORY), "archive", "--format=tar", COMMIT, *_PARTS]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        missing = (
            f"commit {COMMIT}, from which this test upgrades, is not in this clone "
            f"(git: {done.stderr.decode(errors='replace').strip()}). Fetch it with "
            f"`git fetch --depth=1 origin {COMMIT}`, or the whole history with `git fetch --unshallow`"
        )
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return Earlier(folder)
