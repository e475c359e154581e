"""A Dockerfile is executed as Docker would do it, for the instructions that the project's Dockerfile uses.
These tests need no root; test_nodes.py tests steps that run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.dockerfile import Built, DockerfileError, Instruction, carried_out, parsed

TEXT = """
ARG BASE=python:3.11-slim

# Two stages.
FROM ${BASE} AS build
WORKDIR /build
COPY LICENSE README.md ./
COPY detectors code

FROM ${BASE}
COPY --from=build /build/code /opt/code
ENV PATH=/opt/code/bin:$PATH QUIET=1
USER 7:7
ENTRYPOINT ["start", "now"]
"""


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    (folder / "detectors" / "__pycache__").mkdir(parents=True)
    for name in ("LICENSE", "README.md", "SECRET", "detectors/a.py", "detectors/__pycache__/a.pyc"):
        (folder / name).touch()
    (folder / ".dockerignore").write_text("*\n!LICENSE\n!README.md\n!detectors\n", encoding="utf-8")
    return folder


def build(context: Path, text: str) -> Built:
    (context / "Dockerfile").write_text(text, encoding="utf-8")
    work = context.parent / "work"
    return carried_out(
        context / "Dockerfile", context.parent, work=work, cache=work / "steps", base_name="base"
    )


def test_only_what_the_last_stage_has_beside_the_base_is_the_layer(context: Path) -> None:
    built = build(context, TEXT)
    files = {str(path.relative_to(built.layer)) for path in built.layer.rglob("*") if path.is_file()}
    assert files == {"opt/code/a.py"}
    assert built.env["PATH"].startswith("/opt/code/bin:/usr/local/sbin:")
    assert (built.env["QUIET"], built.user, built.entrypoint) == ("1", "7:7", ["start", "now"])


def test_an_image_from_scratch_has_nothing_of_the_base(context: Path) -> None:
    text = f"{TEXT}\nFROM scratch\nCOPY --from=build /build/code /\nENV PATH=/bin\n"
    built = build(context, text)

    assert not built.on_base
    assert [str(path.relative_to(built.layer)) for path in built.layer.rglob("*")] == ["a.py"]
    assert (built.env, built.user, built.entrypoint) == ({"PATH": "/bin"}, "", [])


def test_a_line_that_goes_on_is_one_instruction() -> None:
    assert parsed("RUN one \\\n  two\n# a note\nUSER 1") == [
        Instruction("RUN", "one    two"),
        Instruction("USER", "1"),
    ]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("COPY SECRET ./", r"COPY SECRET: \.dockerignore leaves it out"),
        ("VOLUME /data", "VOLUME /data: this instruction is not known"),
        ("FROM debian", r"FROM debian: only \$\{BASE\} and scratch are known"),
        ("FROM scratch\nRUN true", "RUN true: a stage from scratch has no shell"),
    ],
)
def test_what_docker_would_refuse_or_we_do_not_know_is_refused(
    context: Path, line: str, complaint: str
) -> None:
    with pytest.raises(DockerfileError, match=complaint):
        build(context, f"{TEXT}\n{line}\n")
