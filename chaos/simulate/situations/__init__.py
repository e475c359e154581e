"""Situations: several acts that belong together, as they come together in real clusters. Acts that are drawn
individually seldom meet on one node or one job at the right time.

drawing.py begins two scripts of five with a situation. A situation changes a drawn script: it draws its acts
with all of their parameters, and the cluster gets the room or the shortage that the situation needs. `ALL` is
the registration: a new situation is a function in one of the files, and its line there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from chaos.simulate.script import Script
from chaos.simulate.situations import hardware, people, programs
from chaos.simulate.situations.parts import set_up
from recover.model.modes import Mode

__all__ = [
    "ALL",
    "Situation",
    "situated",
]

Situation = Callable[[Script, random.Random], Script]

_OTHERS_MAX = 2
"""Maximum number of other acts in a script that begins with a situation."""

ALL: Sequence[tuple[float, Situation]] = (
    (1.5, hardware.second_node_breaks),
    (1, hardware.nodes_in_a_row),
    (1, hardware.same_node_breaks_worse),
    (1, hardware.brake_beside_training),
    (1, hardware.degraded_on_a_full_cluster),
    (1, hardware.comes_to_a_degraded_node),
    (1, hardware.degraded_at_a_checkpoint),
    (1, programs.crashes_with_progress),
    (1, programs.checkpoint_does_not_load),
    (1.5, programs.crash_nobody_watched),
    (1.5, people.fault_while_held),
    (1, people.fault_on_held_node),
    (1.5, people.released_then_breaks_again),
    (1, people.person_starts_again),
    (1.5, people.stop_is_refused),
    (1, hardware.broken_spare),
    (1, hardware.node_returns_to_a_waiting_gang),
)
"""Weight and situation."""


def situated(script: Script, draw: random.Random) -> Script:
    """Returns the script with a situation at its beginning, and with few of its other acts."""
    situation = draw.choices([one for _, one in ALL], [weight for weight, _ in ALL])[0]
    others = script.acts[: draw.randint(0, _OTHERS_MAX)]
    script = set_up(script, settings=msgspec.structs.replace(script.setup.settings, mode=Mode.RECOVER))
    changed = situation(msgspec.structs.replace(script, acts=()), draw)
    acts = sorted([*changed.acts, *others], key=lambda act: act.at_s)
    return msgspec.structs.replace(changed, acts=tuple(acts))
