"""The annotation that says where a job's checkpoints lie."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recover.checkpoints.annotation import CheckpointLocation, LocationError, parse


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
    ("value", "problem"),
    [
        ("", "the path is missing"),
        (";format=torch-dcp", "the path is missing"),
        ("ckpt", "the path is not absolute"),
        ("/a/../b", "the path contains .."),
        ("/a\nb", "not printable"),
        ("/" + "a" * 600, "longer than 512 characters"),
        ("/a;", "'' is not a known option"),
        ("/a;form=x", "'form=x' is not a known option"),
        ("/a;format=zip", "format 'zip' is not one of rekindle-sharded, "),
        ("/a;format=torch-dcp;format=torch-dcp", "format is given twice"),
        ("/a;format=generic", "format generic needs ;marker=, a relative file, as DONE or step_{step}/DONE"),
        ("/a;marker=DONE", "format generic needs ;marker="),
        ("/a;format=torch-dcp;marker=DONE", "and no other has one"),
        ("/a;format=generic;marker=../DONE", "marker '../DONE': it is not a plain relative path"),
        ("/a;format=generic;marker=", "marker '': it is empty"),
    ],
)
def test_a_wrong_value_is_told_with_what_was_expected_and_what_follows(value: str, problem: str) -> None:
    with pytest.raises(LocationError) as raised:
        parse(value)

    told = str(raised.value)
    assert told.startswith("annotation rekindle.dev/checkpoint: ")
    assert problem in told
    assert "expected an absolute path" in told
    assert "the framework's own logic decides" in told


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
    with pytest.raises(LocationError, match="digests 'sha256' is not known, expected ;digests=check"):
        parse("/ckpt;digests=sha256")
