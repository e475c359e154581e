"""The scan pod: what it is told to look for."""

from recover.actions import Create
from recover.api import Phase
from tests.acting import advanced, look
from tests.recover.phase_cases import faulted


def test_the_scan_is_told_the_format_and_the_marker_of_the_annotation() -> None:
    world = faulted(checkpoint="/ckpt/llm;format=generic;marker=step_{step}/DONE")
    advanced(world, Phase.STOPPING)

    (made,) = [act for act in look(world).actions if isinstance(act, Create)]

    command = made.body["spec"]["containers"][0]["command"]
    assert command[:4] == ["rekindle", "checkpoints", "scan", "/ckpt/llm"]
    assert command[-4:] == ["--format", "generic", "--marker", "step_{step}/DONE"]
