"""`python -m chaos.torch_training.environment`: makes the virtual environment that train.py runs in.

It lies in the user's cache, one folder for each lock: a second call finds it at once. Some 2.5 GB are
fetched and 4.2 GB kept, since torch is not loaded without CUDA's libraries. Nothing else makes it: who needs
it says that this command is missing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["MissingError", "interpreter", "main"]

COMMAND = "python -m chaos.torch_training.environment"
LOCK = Path(__file__).parents[2] / "requirements" / "torch.lock"
WHOLE = "installed"
"""Written last: without it the folder is what an interrupted call left."""


class MissingError(Exception):
    """The environment is not there, or cannot be made; the message says what to do."""


def interpreter() -> Path:
    """The environment's Python. Raises MissingError, naming the command, if it was not made yet."""
    folder = _folder()
    if not (folder / WHOLE).exists():
        raise MissingError(f"{folder} is not there; make it with `{COMMAND}` (2.5 GB to fetch)")
    return folder / "bin" / "python"


def main() -> int:
    """Makes it if it is missing. Exit 1, with one line that says why, if it cannot."""
    try:
        _make()
    except MissingError as error:
        print(f"{COMMAND}: {error}", file=sys.stderr)
        return 1
    print(interpreter())
    return 0


def _folder() -> Path:
    try:
        lock = LOCK.read_bytes()
    except OSError as error:
        raise MissingError(f"{LOCK}: {error.strerror}; this needs a checkout of the sources") from error
    # Another Python is another environment.
    key = hashlib.sha256(lock + sys.version.encode()).hexdigest()[:12]
    root = os.environ.get("XDG_CACHE_HOME", "") or str(Path.home() / ".cache")
    return Path(root) / "rekindle" / f"torch-{key}"


def _make() -> None:
    folder = _folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two calls at once, one waits for the other
        if (folder / WHOLE).exists():
            return
        print(f"installing {LOCK.name} into {folder} ...", file=sys.stderr, flush=True)
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install"]
        # The cache would hold the same gigabytes once more.
        options = ["--quiet", "--no-cache-dir", "--no-deps", "--require-hashes"]
        done = subprocess.run([*pip, *options, "-r", str(LOCK)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise MissingError(f"pip failed:\n{done.stderr[-3000:]}")
        (folder / WHOLE).touch()


if __name__ == "__main__":
    raise SystemExit(main())
