"""The node's clock, pressure and processes over time become notes; a healthy node gets none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.folds.chain import Chain
from detectors.folds.core import AgentCore, Dirty
from detectors.folds.host import HostFold
from detectors.folds.states import Folded
from detectors.rules.host_pressure import HostSample, Pressure, pressure_of, threads_of
from detectors.rules.host_state_rows import host_state_rows
from detectors.service.settings import Chain as ChainSettings
from detectors.service.settings import Host as Settings
from detectors.wire.contract import Severity
from tests.detectors.folds.ports import agent
from tests.detectors.rules.test_clock_drift import answer

EVERY = timedelta(seconds=30)
ROWS = host_state_rows()
CALM = {"cpu": Pressure(20.0, 0.0), "io": Pressure(9.0, 5.0), "memory": Pressure(0.0, 0.0)}
QUIET = HostSample(CALM, 9_000, 4_000_000)


class Node:
    def __init__(self) -> None:
        self.core: AgentCore = agent()
        self.now = datetime(2026, 11, 26, 8, tzinfo=UTC)
        self.core.mark_written()

    def sample(self, sample: HostSample, times: int = 1) -> list[str]:
        for _ in range(times):
            self.now += EVERY
            self.core.host(sample, self.now)
        return [finding.code for finding in self.core.findings if finding.cleared_at is None]


def with_(**pressure: Pressure) -> HostSample:
    return HostSample({**CALM, **pressure}, QUIET.threads, QUIET.threads_max)


def test_pressure_is_a_note_that_lasts_until_half_of_its_limit() -> None:
    node = Node()
    assert node.sample(QUIET) == []
    assert node.sample(with_(memory=Pressure(40.0, 25.0))) == ["pressure-memory"]
    assert node.core.findings[0].evidence == "in 25 % of the last five minutes all work waited for memory"
    assert node.core.dirty is Dirty.COARSE, "it waits for the next write"
    node.core.mark_written()
    assert node.sample(with_(memory=Pressure(9.0, 7.0)), times=100) == ["pressure-memory"]
    assert node.core.dirty is Dirty.NOTHING
    assert node.sample(QUIET) == []


def test_each_kind_has_its_limit() -> None:
    node = Node()
    assert node.sample(with_(io=Pressure(99.0, 59.0), cpu=Pressure(89.0, 0.0))) == []
    assert node.sample(with_(io=Pressure(99.0, 61.0), cpu=Pressure(91.0, 0.0))) == [
        "pressure-io",
        "pressure-cpu",
    ]


def test_few_free_process_ids_are_a_note() -> None:
    node = Node()
    assert node.sample(HostSample({}, 28_000, 32_768)) == ["pids-short"]
    assert node.core.findings[0].evidence == "28000 of 32768 processes and threads are in use"
    assert node.sample(HostSample({}, 9_000, 32_768)) == []


def test_what_the_kernel_does_not_show_is_no_data() -> None:
    node = Node()
    node.sample(with_(memory=Pressure(40.0, 25.0)))
    assert node.sample(HostSample({}, None, None), times=9) == ["pressure-memory"]
    assert node.sample(HostSample({}, 5, 0)) == ["pressure-memory"]


def test_a_wrong_clock_is_a_note_that_ends_when_several_answers_agree_with_the_clock() -> None:
    node = Node()
    for number in range(4):
        node.core.api_answered(answer(-30.0, at_s=300.0 * number), node.now)
    assert node.sample(QUIET) == ["clock-drift"]
    node.core.clock_set(timedelta(seconds=30), node.now)
    node.core.api_answered(answer(0.0), node.now)
    assert node.sample(QUIET) == ["clock-drift"], "one answer proves nothing"
    for number in range(2):
        node.core.api_answered(answer(0.0, at_s=300.0 * number), node.now)
    assert node.sample(QUIET) == []


def test_no_packaged_row_is_more_than_a_note() -> None:
    assert {row.severity for row in ROWS.values()} == {Severity.INFO}


def test_files_of_the_kernel_are_read_and_others_are_not() -> None:
    some = "some avg10=1.53 avg60=0.87 avg300=0.99 total=72"
    assert pressure_of(f"{some}\nfull avg10=0.00 avg60=0.13 avg300=100.00 total=9\n") == Pressure(0.99, 100.0)
    assert pressure_of("some avg10=nan avg60=0 avg300=1e9 total=x") == Pressure()
    assert threads_of("0.20 0.18 0.12 1/8034 11206\n") == 8034
    assert threads_of("0.20") is None


def healthy(chance: Random) -> HostSample:
    """Returns a sample of a node at work, at rest, without PSI, or while checkpoints are written."""
    kinds = {
        "cpu": Pressure(chance.uniform(0, 90), 0.0),
        "io": Pressure(chance.uniform(0, 100), chance.uniform(0, 60)),
        "memory": Pressure(chance.uniform(0, 100), chance.uniform(0, 10)),
    }
    shown = {kind: waits for kind, waits in kinds.items() if chance.random() < 0.8}
    threads = chance.choice([None, chance.randint(1, 27_000)])
    return HostSample(shown, threads, chance.choice([None, 0, 32_768, 4_194_304]))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_healthy_nodes_say_nothing(seed: int) -> None:
    """There are 4,000 samples: 20 in each of 200 runs."""
    chance = Random(seed)
    chain, fold = Chain(ChainSettings(), "boot"), HostFold(Settings(), ROWS)
    now = datetime(2026, 11, 26, 8, tzinfo=UTC)
    for _ in range(20):
        now += EVERY
        assert fold.fold(chain, healthy(chance), now) == Folded()
    assert chain.findings == []


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_no_file_ends_the_agent(text: str) -> None:
    found = pressure_of(text)
    assert all(value is None or value >= 0 for value in (found.some, found.full))
    assert (threads_of(text) or 0) >= 0
