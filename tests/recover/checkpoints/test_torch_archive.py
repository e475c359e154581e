"""Single files of torch.save and safetensors that are damaged or hostile: the scan refuses them, runs
nothing in them, and reads little of them."""

import json
import os
import pickle
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recover.checkpoints.folder import DamagedError, Folder, OpenFile
from recover.checkpoints.safetensors import check_safetensors
from recover.checkpoints.torch_archive import archive_bytes, outline

FIXTURES = Path(__file__).parent / "fixtures"
LEGACY = FIXTURES / "torch-save-2.15.0/legacy/step-40.pt"


class Payload:
    """Runs a shell command in the process that unpickles it in the ordinary way."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_would_run_a_command_is_refused_and_nothing_runs(legacy: bool, tmp_path: Path) -> None:
    proof = tmp_path / "it-ran"
    malicious = pickle.dumps({"args": Payload(f"touch {proof}")}, protocol=2)
    if legacy:
        (tmp_path / "file").write_bytes(LEGACY.read_bytes()[:15] + malicious)
    else:
        with zipfile.ZipFile(tmp_path / "file", "w") as archive:
            archive.writestr("archive/data.pkl", malicious)
    read = archive_bytes if legacy else outline

    with pytest.raises(DamagedError, match=r"\bposix\.system\b"):
        read(Folder(tmp_path, lambda: None), "file")
    assert not proof.exists()

    pickle.loads(malicious)  # the payload does run, so the test above can fail
    assert proof.exists()


def damaged_at(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pickle warns of odd escapes in a damaged text
@pytest.mark.parametrize(
    "file",
    [
        "torch-save-2.15.0/zip/step-40.pt",
        "torch-save-2.15.0/legacy/step-40.pt",
        "transformers-5.23.0/plain/checkpoint-40/model.safetensors",
    ],
)
def test_a_file_with_any_byte_changed_is_read_or_refused(
    file: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = (FIXTURES / file).read_bytes()
    edge = st.integers(0, 400) | st.integers(len(whole) - 1200, len(whole) - 1)
    at, value = data.draw(edge | st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    directory = tmp_path_factory.mktemp("damaged")
    (directory / "file").write_bytes(damaged_at(whole, at, value))
    folder = Folder(directory, lambda: None)

    with suppress(DamagedError):
        if file.endswith(".pt"):
            archive_bytes(folder, "file")
            outline(folder, "file")
        else:
            check_safetensors(folder, "file")


def test_of_large_files_little_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_bytes = 0
    real = OpenFile.read_at

    def counting(file: OpenFile, offset_bytes: int, count_bytes: int) -> bytes:
        nonlocal read_bytes
        read_bytes += count_bytes
        return real(file, offset_bytes, count_bytes)

    monkeypatch.setattr(OpenFile, "read_at", counting)
    large_bytes = 8 * 2**20
    header = json.dumps({"w": {"dtype": "U8", "shape": [large_bytes], "data_offsets": [0, large_bytes]}})
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header.encode())
        file.truncate(8 + len(header) + large_bytes)
    with zipfile.ZipFile(tmp_path / "step-40.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"step": 40}, protocol=2))
        archive.writestr("archive/data/0", bytes(large_bytes))
    folder = Folder(tmp_path, lambda: None)

    assert check_safetensors(folder, "model.safetensors").tensors == {"w"}
    assert outline(folder, "step-40.pt") == {"step": 40}
    assert read_bytes < 2000
