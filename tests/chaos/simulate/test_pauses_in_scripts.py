"""Random scripts to which pauses by people are added: no rule is broken, and every job runs in the end."""

from __future__ import annotations

import random

import msgspec
import pytest

from chaos.simulate.acts.base import Scene
from chaos.simulate.acts.people import Pause
from chaos.simulate.drawing import script_of
from chaos.simulate.script import Script, play_script


def paused(seed: int) -> Script:
    script, draw = script_of(seed), random.Random(seed)
    last_s = max((act.at_s for act in script.acts), default=100.0)
    pause = Pause.drawn(round(draw.uniform(50.0, last_s + 30.0), 1), Scene(script.setup, script.jobs), draw)
    return msgspec.structs.replace(script, acts=tuple(sorted([*script.acts, pause], key=lambda a: a.at_s)))


@pytest.mark.parametrize("seed", range(2))
def test_a_drawn_script_with_a_pause_keeps_every_rule(seed: int) -> None:
    play_script(paused(seed))


def test_a_pause_can_be_written_down_in_a_script() -> None:
    script = paused(0)

    assert msgspec.json.decode(msgspec.json.encode(script), type=Script) == script
