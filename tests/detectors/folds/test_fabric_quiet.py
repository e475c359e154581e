"""Samples of what ports of healthy nodes do: no finding from them is more than a note.

Each family of sequences is drawn 200 times or more. The states are the ones that drivers show: InfiniBand
trains its link from Polling over Init and Armed to Active, and a RoCE port is down while its carrier is down.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.rules.fabric_ports import Port
from tests.detectors.folds.ports import (
    ARMED,
    DISABLED,
    HIDDEN,
    INIT,
    OFF,
    POLLING,
    UNPLUGGED,
    Node,
    agent,
    ib,
    roce,
)

SAMPLES = 200
MAKERS: list[Callable[..., Port]] = [ib, roce]
quiet = settings(max_examples=SAMPLES, deadline=None)
makers = st.sampled_from(MAKERS)
TIMES = st.integers(1, 6)
pods = st.booleans()


def without_link(make: Callable[..., Port]) -> dict[str, object]:
    return POLLING if make is ib else UNPLUGGED


def training(make: Callable[..., Port]) -> list[dict[str, object]]:
    """Returns the states on the way to a link."""
    return [POLLING, INIT, ARMED] if make is ib else [OFF, UNPLUGGED]


def ranks(node: Node, draw: st.DataObject) -> None:
    if draw.draw(pods, label="a rank is there"):
        node.rank()
        if draw.draw(pods, label="its steps are read"):
            node.step(1)


@quiet
@given(st.data())
def test_boots(data: st.DataObject) -> None:
    """Links are trained, and lost again, for some minutes; ranks start early."""
    make = data.draw(makers)
    node = Node(up_s=data.draw(st.floats(5, 120), label="up_s"))
    ranks(node, data)
    downs = 0
    for _ in range(data.draw(st.integers(1, 3), label="times trained")):
        for state in training(make):
            node.sample(make(downs=downs, **state), make(1), times=data.draw(st.integers(1, 2)))
        node.sample(make(downs=downs), make(1), times=data.draw(st.integers(1, 2)))
        downs += 1
    node.sample(make(downs=downs - 1), make(1), minutes=15)

    assert node.loud() == []


@quiet
@given(st.data())
def test_reloads_of_the_driver(data: st.DataObject) -> None:
    """All ports vanish, perhaps between two samples, come back one after the other with counters at zero, and
    train their links."""
    makes = data.draw(st.lists(makers, min_size=1, max_size=3))
    node = Node()
    ranks(node, data)
    whole = [make(number, downs=data.draw(st.integers(0, 255))) for number, make in enumerate(makes)]
    node.sample(*whole, times=data.draw(TIMES))
    for reload in range(1, 1 + data.draw(st.integers(1, 2), label="reloads")):
        if data.draw(pods, label="ranks end before it"):
            node.ends()
            node.leaves()
        if away := data.draw(st.integers(0, 40), label="away"):
            node.sample(times=away)
        back: list[Port] = []
        for number, make in enumerate(makes):
            for state in training(make):
                on_its_way = make(number, registration=reload, **state)
                node.sample(*back, on_its_way, times=data.draw(st.integers(1, 2)))
            back.append(make(number, registration=reload, downs=data.draw(st.integers(0, 2))))
        node.sample(*back, times=data.draw(TIMES))
    node.sample(*back, minutes=12)

    assert node.loud() == []


@quiet
@given(st.data())
def test_pods_that_come_and_go(data: st.DataObject) -> None:
    """The pods' networks move a port into the pod, switch the port off and on, and take its link down."""
    node = Node()
    port = data.draw(makers)(downs=3)
    node.sample(port, ib(7), times=4)
    for number in range(data.draw(st.integers(1, 12), label="pods")):
        uid = f"rank-{number}"
        node.rank(uid)
        node.pods_change()
        port = msgspec.structs.replace(port, downs=(port.downs or 0) + data.draw(st.integers(0, 9)))
        if port.link_layer == "Ethernet" and data.draw(pods, label="the pod takes the port"):
            node.sample(msgspec.structs.replace(port, **HIDDEN), ib(7), times=data.draw(TIMES))
            node.sample(msgspec.structs.replace(port, **OFF), ib(7), times=data.draw(TIMES))
        node.sample(port, ib(7), times=data.draw(TIMES))
        if data.draw(pods, label="the pod goes"):
            node.ends(uid)
            node.leaves()
            node.pods_change()
            port = msgspec.structs.replace(port, downs=(port.downs or 0) + data.draw(st.integers(0, 9)))
            node.sample(port, ib(7), times=data.draw(TIMES))
    node.sample(port, ib(7), minutes=10)

    assert node.loud() == []


@quiet
@given(st.data())
def test_unused_ports(data: st.DataObject) -> None:
    """A port without a cable may show anything, as long as it was never active."""
    make = data.draw(makers)
    node = Node(up_s=data.draw(st.floats(5, 1e6)))
    ranks(node, data)
    states = [*training(make), DISABLED if make is ib else HIDDEN]
    for state in data.draw(st.lists(st.sampled_from(states), min_size=1, max_size=12)):
        downs = data.draw(st.none() | st.integers(0, 255))
        node.sample(make(**(state | {"downs": downs})), ib(7), times=data.draw(TIMES))
        if data.draw(pods):
            node.ends()
            node.leaves()

    assert node.loud() == []


@quiet
@given(st.data())
def test_people_and_daemons_that_set_up_the_network(data: st.DataObject) -> None:
    """A new MTU and new queues take a link down in a burst. A port that is switched off stays off for
    long."""
    node = Node()
    ranks(node, data)
    downs = 0
    node.sample(roce(downs=downs), roce(1), times=4)
    for _ in range(data.draw(st.integers(1, 4), label="changes")):
        if data.draw(pods, label="switched off"):
            node.sample(roce(downs=downs, **OFF), roce(1), times=data.draw(st.integers(1, 30)))
            node.sample(roce(downs=downs, **UNPLUGGED), roce(1), times=data.draw(st.integers(1, 4)))
            if data.draw(pods):
                node.ends()
                node.leaves()
        else:
            for _ in range(data.draw(st.integers(1, 3), label="within a minute")):
                downs += data.draw(st.integers(1, 4))
                node.sample(roce(downs=downs), roce(1))
        node.sample(roce(downs=downs), roce(1), minutes=data.draw(st.integers(6, 10)))

    assert node.loud() == []


@quiet
@given(st.data())
def test_links_that_recover_within_a_sample(data: st.DataObject) -> None:
    """A restart of the subnet manager, or a link that is trained again, is visible in one sample at most."""
    make = data.draw(makers)
    node = Node()
    ranks(node, data)
    downs = 0
    node.sample(make(downs=downs), make(1), times=4)
    for _ in range(data.draw(st.integers(1, 4))):
        state = data.draw(st.sampled_from([INIT, ARMED, POLLING] if make is ib else [UNPLUGGED]))
        downs += data.draw(st.integers(0, 1))
        node.sample(make(downs=downs, **state), make(1))
        node.sample(make(downs=downs), make(1), minutes=data.draw(st.integers(6, 12)))
        if data.draw(pods):
            node.ends()
            node.leaves()

    assert node.loud() == []


@quiet
@given(st.data())
def test_agents_that_start_anew(data: st.DataObject) -> None:
    """The agent restarts while a port is active, off, in a pod, or was never used."""
    make = data.draw(makers)
    states: list[dict[str, object]] = [{}, INIT, DISABLED] if make is ib else [{}, OFF, HIDDEN]
    node = Node()
    ranks(node, data)
    node.sample(make(), ib(7), times=4)
    for state in data.draw(st.lists(st.sampled_from(states), min_size=1, max_size=4)):
        core = agent()
        core.restore(node.core.status(node.now))
        up_s = 4000 + data.draw(st.floats(0, 1e5))
        node = Node(up_s=up_s, core=core)
        ranks(node, data)
        facts = {"downs": data.draw(st.integers(0, 255))} | state
        node.sample(make(**facts), ib(7), times=data.draw(TIMES))

    assert node.loud() == []


@quiet
@given(st.data())
def test_counters_of_sound_links(data: st.DataObject) -> None:
    """The counters show some errors, rates that differ between boards, counters that were reset or that are
    full."""
    node = Node()
    ranks(node, data)
    errors, downs = data.draw(st.integers(0, 65535)), data.draw(st.sampled_from([0, 3, 254, 255]))
    rate = data.draw(st.sampled_from([25.0, 100.0, 200.0, 400.0, None]))
    for _ in range(data.draw(st.integers(1, 20))):
        errors += data.draw(st.integers(0, 3))
        if data.draw(st.integers(0, 9)) == 0:
            errors, downs = 0, 0
        node.sample(ib(errors=errors, downs=downs, rate_gbps=rate), ib(1), roce(2), times=data.draw(TIMES))

    assert node.loud() == []


@pytest.mark.parametrize("make", MAKERS)
def test_the_same_sequences_do_show_a_fault(make: Callable[..., Port]) -> None:
    """Otherwise a detector that reports nothing would pass these tests."""
    node = Node()
    node.rank()
    node.sample(make(), make(1), times=4)
    node.sample(make(**without_link(make)), make(1), times=4)
    node.ends()
    node.sample(make(**without_link(make)), make(1), times=4)

    assert node.loud() == ["port-down", "port-dead"]
