"""The bench of logs prints lines as containers print them, and the agent reads the lines correctly."""

import json
from datetime import UTC, datetime

import pytest

from chaos.bench import BENCHES
from chaos.bench.logs import KINDS, STORMS, measure
from detectors.folds.core import AgentCore
from detectors.rules.facts import PodRef
from detectors.service.settings import AgentSettings
from detectors.sources.cri import Joiner, parse_line

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def read(printed: list[bytes]) -> tuple[int | None, str | None]:
    """Returns the last step, and the code of the first error."""
    core, joiner = AgentCore(AgentSettings(), boot_id="b"), Joiner(16 * 1024)
    pod = PodRef("t", "p", "u", "c")
    for data in printed:
        line = parse_line(data)
        assert line is not None
        text = joiner.add(line)
        if text is not None:
            core.log_line(pod, text, line.at)
    core.pod_ended(pod, NOW)
    pods = core.status(NOW).pods
    error = pods[0].first_error if pods else None
    return (pods[0].last_step if pods else None, error.code if error is not None else None)


@pytest.mark.parametrize("kind", ["step", "step of a logger", "Megatron", "DeepSpeed", "torchtitan"])
def test_the_lines_of_a_training_are_read_as_its_steps(kind: str) -> None:
    assert read(KINDS[kind](30)) == (30, None)


@pytest.mark.parametrize("kind", ["text", "text, new words", "JSON", "access log", "NCCL"])
def test_other_lines_tell_of_no_step_and_of_no_error(kind: str) -> None:
    assert read(KINDS[kind](30)) == (None, None)


def test_storms_of_errors_are_read_as_errors_and_bars_as_bars() -> None:
    for name in ("errors", "lost peers", "tracebacks", "text behind an error"):
        assert read(STORMS[name](30))[1] is not None, name
    part = parse_line(STORMS["a bar that does not end"](1000)[0])
    assert part is not None
    assert part.partial
    assert part.text.count("\r") > 100


def test_each_kind_is_measured_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert BENCHES["logs"].run(["--lines=10", "--rounds=1", "-o", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [cost["name"] for cost in printed["kinds"]] == list(KINDS)
    assert [cost["name"] for cost in printed["storms"]] == list(STORMS)

    assert BENCHES["logs"].run(["--lines=10", "--rounds=1"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in (*KINDS, *STORMS))


def test_a_share_of_a_core_is_the_cost_of_what_the_agent_reads_in_a_second() -> None:
    found = measure(lines=10, rounds=1)

    cost = found.kinds[0]
    per_second_us = cost.us_per_kib / 1024 * found.bytes_per_s_max
    assert cost.core_percent == pytest.approx(per_second_us / 1e4, rel=0.05, abs=0.1)
