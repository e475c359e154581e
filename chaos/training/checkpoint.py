"""Sharded checkpoints: every rank writes its part of the state, then rank 0 writes `commit.json`, last.

    step-40/shard-0-of-2.npz    this rank's part of the parameters and of both moments
    step-40/shard-1-of-2.npz
    step-40/commit.json         names, sizes and checksums of the shards; only with it the checkpoint counts

A rank that dies in between leaves a directory without commit.json, which no rank will load.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from chaos.training.collective import Peers
from chaos.training.network import PARAMETERS, State

__all__ = ["load", "newest", "save", "write_atomically"]

FORMAT = "rekindle-sharded"
MARKER = "commit.json"
WRITE_PIECES = 20


def save(root: Path, step: int, state: State, peers: Peers, *, write_s: float) -> None:
    """Saves a checkpoint. All ranks call it at the same step. `write_s` stretches the writing, as a slow file
    system would."""
    directory = root / f"step-{step}"
    if peers.rank == 0:
        directory.mkdir(parents=True, exist_ok=True)
        # The marker must never vouch for shards that are being written.
        (directory / MARKER).unlink(missing_ok=True)
    peers.barrier()

    name = f"shard-{peers.rank}-of-{peers.world_size}.npz"
    data = _shard(state, peers.rank, peers.world_size)
    _write_slowly(directory / name, data, write_s)
    entry = {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    files = [json.loads(message) for message in peers.to_first(json.dumps(entry).encode())]
    if peers.rank == 0:
        manifest = {"format": FORMAT, "step": step, "files": files}
        write_atomically(directory / MARKER, json.dumps(manifest, indent=1).encode())
    peers.barrier()


def newest(root: Path) -> Path | None:
    """Returns the committed checkpoint with the highest step. Returns None if there is none."""
    markers = root.glob(f"step-*/{MARKER}")
    steps = {
        int(number): marker.parent for marker in markers if (number := marker.parent.name[5:]).isdecimal()
    }
    return steps[max(steps)] if steps else None


def load(path: Path) -> tuple[int, State]:
    """Returns the step and the state. Raises RuntimeError, which names the file and the error."""
    try:
        manifest = json.loads((path / MARKER).read_bytes())
        shards = [_verified(path / file["name"], file["bytes"], file["sha256"]) for file in manifest["files"]]
        arrays = [np.load(io.BytesIO(shard)) for shard in shards]
        state = State(*(np.concatenate([array[field] for array in arrays]) for field in _FIELDS))
        if any(getattr(state, field).shape != (PARAMETERS,) for field in _FIELDS):
            raise ValueError(f"the shards do not hold {PARAMETERS} parameters")
        return int(manifest["step"]), state
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise RuntimeError(f"cannot load checkpoint {path}: {error}") from error


def write_atomically(path: Path, data: bytes) -> None:
    """Writes the file, which appears complete or not at all, and is on disk when the function returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


_FIELDS = ("parameters", "first_moment", "second_moment")


def _shard(state: State, rank: int, world_size: int) -> bytes:
    parts = [np.array_split(getattr(state, field), world_size)[rank] for field in _FIELDS]
    buffer = io.BytesIO()
    np.savez(buffer, parameters=parts[0], first_moment=parts[1], second_moment=parts[2])
    return buffer.getvalue()


def _write_slowly(path: Path, data: bytes, write_s: float) -> None:
    """Writes under the final name from the first byte, as most trainers do: only the marker shows that a
    shard is complete."""
    piece_bytes = -(-len(data) // WRITE_PIECES)
    with path.open("wb") as file:
        for start in range(0, len(data), piece_bytes):
            file.write(data[start : start + piece_bytes])
            file.flush()
            time.sleep(write_s / WRITE_PIECES)
        os.fsync(file.fileno())


def _verified(path: Path, size_bytes: int, sha256: str) -> bytes:
    data = path.read_bytes()
    if len(data) != size_bytes:
        raise ValueError(f"{path.name} has {len(data)} bytes, but {MARKER} expects {size_bytes}")
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError(f"the checksum of {path.name} is not the one in {MARKER}")
    return data
