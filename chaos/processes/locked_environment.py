"""Virtual environments for trainings with libraries that Rekindle itself does not need: one for each lock,
and some as a layer above another one.

Each environment is in the user's cache, in a folder with its lock's name and digest: a second call finds it
at once. The `environment.py` of a training names the lock, and the cost; no other code creates the
environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import msgspec

__all__ = ["LockedEnvironment", "MissingError"]

LOCKS = Path(__file__).parents[2] / "requirements"
WHOLE = "installed"
"""Name of the file that is written last. A folder without it is the remainder of an interrupted call."""


class MissingError(Exception):
    """The environment does not exist, or cannot be created. The message says what to do."""


class LockedEnvironment(msgspec.Struct, frozen=True):
    """The environment of requirements/<name>.lock. `command` creates it; `cost` is the cost that users see
    before they call the command."""

    name: str
    command: str
    cost: str
    below: LockedEnvironment | None = None
    """Environment below this one. Packages of this environment take precedence over those of `below`, which
    it sees as well."""
    builders: tuple[str, ...] = ()
    """Packages of the lock that build the libraries that come as sources. They are installed first."""

    def interpreter(self) -> Path:
        """Returns the environment's Python. Raises MissingError, which names the command, if it was not
        created yet."""
        folder = self._folder()
        if not (folder / WHOLE).exists():
            raise MissingError(f"{folder} is not there; make it with `{self.command}` ({self.cost})")
        return folder / "bin" / "python"

    def main(self) -> int:
        """Creates the environment if it is missing, and prints its Python. If the environment cannot be
        created, prints the reason and returns 1."""
        try:
            self._make()
        except MissingError as error:
            print(f"{self.command}: {error}", file=sys.stderr)
            return 1
        print(self.interpreter())
        return 0

    @property
    def _lock(self) -> Path:
        return LOCKS / f"{self.name}.lock"

    def _folder(self) -> Path:
        try:
            lock = self._lock.read_bytes()
        except OSError as error:
            needed = "this needs a checkout of the sources"
            raise MissingError(f"{self._lock}: {error.strerror}; {needed}") from error
        # Another Python needs another environment.
        below = self.below._folder().name if self.below is not None else ""
        key = hashlib.sha256(lock + sys.version.encode() + below.encode()).hexdigest()[:12]
        root = os.environ.get("XDG_CACHE_HOME", "") or str(Path.home() / ".cache")
        return Path(root) / "rekindle" / f"{self.name}-{key}"

    def _make(self) -> None:
        if self.below is not None:
            self.below._make()
        folder = self._folder()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of two simultaneous calls, one waits for the other
            if (folder / WHOLE).exists():
                return
            print(f"installing {self._lock.name} into {folder} ...", file=sys.stderr, flush=True)
            venv.create(folder, clear=True, with_pip=True)
            if self.below is not None:
                (_packages(folder) / "below.pth").write_text(f"{_packages(self.below._folder())}\n")
            if self.builders:
                self._install(folder, self._builder_lock(folder))
            self._install(folder, self._lock)
            (folder / WHOLE).touch()

    def _builder_lock(self, folder: Path) -> Path:
        entries = re.findall(r"^[a-z].*\n(?: .*\n)*", self._lock.read_text(), re.MULTILINE)
        path = folder / "builders.lock"
        path.write_text("".join(entry for entry in entries if entry.partition("==")[0] in self.builders))
        return path

    @staticmethod
    def _install(folder: Path, lock: Path) -> None:
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
        # pip's cache would store the same files once more. The lock names all packages, including those for
        # builds.
        options = ["--quiet", "--no-cache-dir", "--no-deps", "--require-hashes", "--no-build-isolation"]
        done = subprocess.run([*pip, *options, "-r", str(lock)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise MissingError(f"pip failed:\n{done.stderr[-3000:]}")


def _packages(folder: Path) -> Path:
    return folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
