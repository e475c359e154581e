"""Virtual environments for trainings with libraries that Rekindle itself does not need: one for each lock,
and some a layer above another one.

Each lies in the user's cache, in a folder of its lock's name and digest: a second call finds it at once. The
`environment.py` of a training says which lock, and what it costs; nothing else makes it.
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
"""Written last: without it the folder is what an interrupted call left."""


class MissingError(Exception):
    """The environment is not there, or cannot be made; the message says what to do."""


class LockedEnvironment(msgspec.Struct, frozen=True):
    """What requirements/<name>.lock names. `command` makes it; `cost` is said before anybody calls that."""

    name: str
    command: str
    cost: str
    below: LockedEnvironment | None = None
    """What this one installs lies before the packages of that one, which it sees as well."""
    builders: tuple[str, ...] = ()
    """Of the lock, what builds the libraries that come as sources: it is installed before."""

    def interpreter(self) -> Path:
        """The environment's Python. Raises MissingError, naming the command, if it was not made yet."""
        folder = self._folder()
        if not (folder / WHOLE).exists():
            raise MissingError(f"{folder} is not there; make it with `{self.command}` ({self.cost})")
        return folder / "bin" / "python"

    def main(self) -> int:
        """Makes it if it is missing, and prints its Python. Exit 1, with one line that says why, if it cannot
        be made."""
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
        # Another Python is another environment.
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
            fcntl.flock(lock, fcntl.LOCK_EX)  # of two calls at once, one waits for the other
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
        # pip's cache would hold the same once more. The lock names all that is needed, also to build.
        options = ["--quiet", "--no-cache-dir", "--no-deps", "--require-hashes", "--no-build-isolation"]
        done = subprocess.run([*pip, *options, "-r", str(lock)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise MissingError(f"pip failed:\n{done.stderr[-3000:]}")


def _packages(folder: Path) -> Path:
    return folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
