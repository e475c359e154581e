"""Tests recover/stories/annotations.py: the story names annotations and labels of people that Rekindle
cannot use, and no others."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recover.k8s.durations import parse_s
from recover.model import Gang, NamespaceView
from recover.model.modes import Mode
from recover.policy.consent import held
from recover.policy.settings import Budgets
from recover.stories.annotations import misread_on_job, misread_on_node
from recover.stories.keys import KEYS
from recover.stories.why_job import why_job
from recover.stories.why_node import why_node
from recover.triage.attempts import attempts_limit
from tests.facts import missing
from tests.recover.stories.why_cases import NOW, job, node, told


def _annotated(**values: str) -> Gang:
    gang = job().gang
    assert gang is not None
    annotations = {f"rekindle.dev/{name.replace('_', '-')}": value for name, value in values.items()}
    return msgspec.structs.replace(gang, annotations=annotations)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("auto_recovery", "yes", ("enabled", "observe", "disabled")),
        ("checkpoint", "ckpt", (";format=<name>", "/ckpt;format=torch-dcp")),
        ("checkpoint_repair", "all", ("none", "tracker", "set-aside", "tracker,set-aside")),
        ("step_template", "step", ("{step}", 128)),
        ("hang_timeout", "20 minutes", ("20m", "1h30m", "off")),
        ("attempts_per_cause", "-1", (1,)),
        ("max_recoveries", "many", (1,)),
        ("hold_until", "tomorrow", ("2030-01-31T18:00:00Z",)),
        ("hold_until", "2030-01-31T18:00:00", ("2030-01-31T18:00:00Z",)),
    ],
)
def test_an_annotation_that_cannot_be_used_is_told_with_value_expectation_and_consequence(
    name: str, value: str, expected: tuple[str | int, ...]
) -> None:
    (sentence,) = misread_on_job(_annotated(**{name: value}), None)

    full = f"rekindle.dev/{name.replace('_', '-')}"
    (key,) = (one for one in KEYS if one.name == full)
    assert key.instead
    assert not missing(sentence, "annotation", full, repr(value), key.expected, key.instead)
    assert not missing(key.expected, *expected)


def test_annotations_that_can_be_used_are_not_mentioned() -> None:
    gang = _annotated(
        auto_recovery="enabled",
        checkpoint="/ckpt;format=torch-dcp",
        checkpoint_repair="tracker,set-aside",
        step_template="step {step}/",
        hang_timeout="1h30m",
        attempts_per_cause="2",
        max_recoveries="9",
        hold="true",
        hold_until="2030-01-31T18:00:00Z",
        hold_reason="moving racks",
        recovery="{}",
    )

    assert misread_on_job(gang, NamespaceView("team", {}, {"rekindle.dev/mode": "observe"})) == ()


def test_a_misspelt_name_gets_the_nearest_and_other_peoples_annotations_are_their_own() -> None:
    gang = msgspec.structs.replace(
        _annotated(chekpoint="/ckpt"), labels={"rekindle.dev/step-template": "x", "example.com/hold": "?"}
    )

    annotation, label = misread_on_job(gang, None)

    assert not missing(annotation, "annotation", "rekindle.dev/chekpoint", "rekindle.dev/checkpoint", "job")
    assert not missing(label, "label", "rekindle.dev/step-template")
    assert "example.com" not in annotation + label


def test_a_name_in_the_wrong_place_gets_its_place_and_not_the_nearest_name() -> None:
    (mode,) = misread_on_job(_annotated(mode="observe"), None)
    (hold,) = misread_on_node(msgspec.structs.replace(node(), labels={"rekindle.dev/hold": "true"}))

    assert mode.count("rekindle.dev/mode") == 2, "what was written, and what was meant"
    assert not missing(mode, "namespace")
    assert not missing(hold, "rekindle.dev/hold", "a label", "an annotation of the node")
    assert not missing(hold, "annotation", "node")


def test_a_namespace_whose_mode_is_none_is_told_which_there_are() -> None:
    namespace = NamespaceView("team", {"rekindle.dev/auto-recovery": "on"}, {"rekindle.dev/mode": "dry-run"})

    mode, consent = misread_on_job(_annotated(), namespace)

    assert not missing(mode, "annotation", "rekindle.dev/mode", "team", "'dry-run'", *Mode)
    assert not missing(consent, "label", "rekindle.dev/auto-recovery", "team", "'on'")


def test_why_tells_it_for_a_job_and_for_a_node() -> None:
    asked = msgspec.structs.replace(job(), misread=misread_on_job(_annotated(hang_timeout="soon"), None))
    held_node = msgspec.structs.replace(node(), annotations={"rekindle.dev/hold-until": "soon"})

    assert asked.misread[0] in told(why_job(asked, [], [], NOW))
    (sentence,) = misread_on_node(held_node)
    assert sentence in told(why_node("node-3", held_node, None, [], NOW))


@given(value=st.text(max_size=12) | st.from_regex(r"[0-9]{1,10}", fullmatch=True))
def test_a_number_is_called_unusable_exactly_where_the_default_holds(value: str) -> None:
    gang = _annotated(attempts_per_cause=value)
    default = Budgets(attempts_per_cause_max=1_000_000_000)

    is_default = attempts_limit(gang, default) == default.attempts_per_cause_max

    assert bool(misread_on_job(gang, None)) == is_default


@given(value=st.text(max_size=12))
def test_a_duration_is_called_unusable_exactly_where_none_is_read(value: str) -> None:
    assert bool(misread_on_job(_annotated(hang_timeout=value), None)) == (parse_s(value) is None)


@given(value=st.text(max_size=20) | st.datetimes().map(lambda t: t.isoformat()))
def test_a_hold_without_a_readable_end_holds_and_is_told(value: str) -> None:
    gang = _annotated(hold="true", hold_until=value)

    hold = held(gang.annotations, NOW)

    if misread_on_job(gang, None):
        assert hold is not None
        assert hold.until is None


def test_a_misspelt_label_of_a_node_is_told_and_ours_is_not() -> None:
    labels = {"rekindle.dev/manged": "false", "rekindle.dev/health": "faulted", "zone": "a"}

    (sentence,) = misread_on_node(msgspec.structs.replace(node(), labels=labels))

    assert not missing(sentence, "label", "rekindle.dev/manged", "rekindle.dev/managed", "node")
