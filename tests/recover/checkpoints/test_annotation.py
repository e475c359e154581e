"""Tests the annotation that names the place of a job's checkpoints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recover.checkpoints.annotation import (
    ANNOTATION,
    FORMATS,
    PATH_CHARS_MAX,
    CheckpointLocation,
    LocationError,
    parse,
)
from recover.checkpoints.marker_template import MARKER_EXPECTED
from tests.facts import names


@pytest.mark.parametrize(
    ("value", "path", "format_name"),
    [
        ("/ckpt", "/ckpt", None),
        (" /ckpt/run 1/ ", "/ckpt/run 1", None),
        ("/ckpt;format=torch-dcp", "/ckpt", "torch-dcp"),
        ("/ckpt ; format = rekindle-sharded", "/ckpt", "rekindle-sharded"),
        ("//data//./ckpt", "/data/ckpt", None),
    ],
)
def test_a_path_and_a_format_are_read(value: str, path: str, format_name: str | None) -> None:
    assert parse(value) == CheckpointLocation(path=path, format=format_name)


def test_the_marker_of_a_format_of_ones_own_is_read() -> None:
    found = parse("/ckpt;format=generic;marker=step_{step}/DONE")

    assert found == CheckpointLocation(path="/ckpt", format="generic", marker="step_{step}/DONE")


@pytest.mark.parametrize(
    ("value", "facts"),
    [
        ("", []),
        (";format=torch-dcp", []),
        ("ckpt", []),
        ("/a/../b", [".."]),
        ("/a\nb", []),
        ("/" + "a" * 600, [PATH_CHARS_MAX]),
        ("/a;", ["''"]),
        ("/a;form=x", ["'form=x'", "format=x"]),
        ("/a;zz=x", ["format, marker, digests"]),
        ("s3://bucket/ckpt", ["s3://", "object store"]),
        ("/a;format=generic;marker=stp-{step/DONE", ["{step}", MARKER_EXPECTED]),
        ("/a;format=generic;marker=step-{{step}}/DONE", ["{step}", MARKER_EXPECTED]),
        ("/a;format=generic;marker=step}/DONE", ["{step}", MARKER_EXPECTED]),
        ("/a;format=generic;marker=step-{stp}/DONE", ["{stp}", "{step}"]),
        ("/a;format=zip", ["'zip'", *FORMATS]),
        ("/a;format=torch-dcp;format=torch-dcp", []),
        ("/a;format=generic", ["generic", "marker", MARKER_EXPECTED]),
        ("/a;marker=DONE", ["format generic", "marker"]),
        ("/a;format=torch-dcp;marker=DONE", ["format generic", "marker"]),
        ("/a;format=generic;marker=../DONE", ["marker", "'../DONE'", MARKER_EXPECTED]),
        ("/a;format=generic;marker=", ["marker", "''", MARKER_EXPECTED]),
    ],
)
def test_a_wrong_value_is_told_with_what_was_expected_and_what_follows(
    value: str, facts: list[object]
) -> None:
    with pytest.raises(LocationError) as raised:
        parse(value)

    told = str(raised.value)
    shown, ours = ascii(value if len(value) <= 120 else value[:120] + "..."), raised.value.why
    assert names(told, ANNOTATION, ours)
    assert ours.startswith(shown)
    is_path = value.startswith(";") or (";" not in value and "://" not in value)
    assert names(ours.removeprefix(shown), *facts, *([";format=<name>"] if is_path else []))


@given(st.text())
def test_any_text_gives_a_normal_absolute_path_or_the_error(value: str) -> None:
    try:
        location = parse(value)
    except LocationError as error:
        told = str(error)
    else:
        told = ""
        assert parse(location.path).path == location.path
        assert location.path.startswith("/")
    assert len(told) < 3000


def test_digests_are_compared_where_the_annotation_asks_for_it() -> None:
    assert parse("/ckpt;format=torch-dcp;digests=check").digests
    assert not parse("/ckpt;format=torch-dcp").digests
    with pytest.raises(LocationError, match=r"'sha256'.*;digests=check"):
        parse("/ckpt;digests=sha256")
