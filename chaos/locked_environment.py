"""Virtual environments for trainings with libraries that Rekindle itself does not need: one for each lock.

Each lies in the user's cache, in a folder of its lock's name and digest: a second call finds it at once. The
`environment.py` of a training says which lock, and what it costs; nothing else makes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

import msgspec

__all__ = ["LockedEnvironment", "MissingError"]

LOCKS = Path(__file__).parents[1] / "requirements"
WHOLE = "installed"
"""Written last: without it the folder is what an interrupted call left."""


class MissingError(Exception):
    """The environment is not there, or cannot be made; the message says what to do."""


class LockedEnvironment(msgspec.Struct, frozen=True):
    """What requirements/<name>.lock names. `command` makes it; `cost` is said before anybody calls that."""

    name: str
    command: str
    cost: str

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
        key = hashlib.sha256(lock + sys.version.encode()).hexdigest()[:12]
        root = os.environ.get("XDG_CACHE_HOME", "") or str(Path.home() / ".cache")
        return Path(root) / "rekindle" / f"{self.name}-{key}"

    def _make(self) -> None:
        folder = self._folder()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of two calls at once, one waits for the other
            if (folder / WHOLE).exists():
                return
            print(f"installing {self._lock.name} into {folder} ...", file=sys.stderr, flush=True)
            venv.create(folder, clear=True, with_pip=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
            # pip's cache would hold the same once more. The lock names all that is needed.
            options = ["--quiet", "--no-cache-dir", "--no-deps", "--require-hashes"]
            command = [*pip, *options, "-r", str(self._lock)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise MissingError(f"pip failed:\n{done.stderr[-3000:]}")
            (folder / WHOLE).touch()
