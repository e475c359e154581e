"""The parts of a recipe. recipes/load.py reads files and recipes/objects.py reads Recipe objects, with the
same names of fields. The CRD and docs/reference/recipes.md are generated from this file. Pure.

A match is a list of clauses that must all be true, and a clause is one test or a choice of tests. Two levels
are enough for every known issue, can be read from top to bottom, and suit an API object, whose schema allows
no recursion.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from detectors.wire.contract import Fault

__all__ = [
    "KINDS",
    "Change",
    "Clause",
    "Comparison",
    "EnvIs",
    "EnvTest",
    "Framework",
    "Hold",
    "LabelRule",
    "Match",
    "Placement",
    "Recipe",
    "RecipeSpec",
    "Relation",
    "RequestIs",
    "RequestTest",
    "Test",
    "Verify",
]

Sentence = Annotated[str, Meta(min_length=8, max_length=300)]
Prose = Annotated[str, Meta(max_length=2000)]
Template = Annotated[str, Meta(max_length=300)]
Word = Annotated[str, Meta(min_length=1, max_length=253)]


class _Part(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True, rename="camel"
):
    pass


class Framework(StrEnum):
    PADDLE = "paddle"
    PYTORCH = "pytorch"
    TENSORFLOW = "tensorflow"
    JAX = "jax"
    MINDSPORE = "mindspore"
    VLLM = "vllm"


class RequestIs(StrEnum):
    REQUESTED = "requested"
    NOT_REQUESTED = "not-requested"
    MULTIPLE_OF = "multiple-of"
    NOT_MULTIPLE_OF = "not-multiple-of"


class RequestTest(_Part, frozen=True, kw_only=True):
    """The amount of one resource that the container requests. A request of 0 counts as no request."""

    name: Word
    """The resource, such as `tencent.com/vcuda-core`."""
    is_: RequestIs = msgspec.field(name="is")
    """`requested`; `not-requested`; `multiple-of`: the container requests a multiple of `value`;
    `not-multiple-of`: the container requests a number that is neither 0 nor a multiple of `value`."""
    value: Annotated[int, Meta(ge=0)] = 0
    """The number for `multiple-of` and `not-multiple-of`. For example, 100 units of vcuda-core are a whole
    card."""


class EnvIs(StrEnum):
    SET = "set"
    UNSET = "unset"
    EQUALS = "equals"
    NOT_EQUALS = "not-equals"


class EnvTest(_Part, frozen=True, kw_only=True):
    """A variable in the `env` of the container's template."""

    name: Word
    """The variable."""
    is_: EnvIs = msgspec.field(name="is")
    """`set`, `unset`, `equals` or `not-equals`. `not-equals` is also true if the variable is not set."""
    value: Annotated[str, Meta(max_length=1024)] = ""
    """The value to compare with, for `equals` and `not-equals`."""


class Relation(StrEnum):
    AT_LEAST = "at-least"
    AT_MOST = "at-most"
    NEWER_THAN = "newer-than"
    OLDER_THAN = "older-than"
    SAME_MAJOR = "same-major"
    OTHER_MAJOR = "other-major"
    MAJORS_BELOW = "majors-below"
    NOT_MAJORS_BELOW = "not-majors-below"
    MORE_MAJORS_BELOW = "more-majors-below"


class Comparison(_Part, frozen=True, kw_only=True):
    """A comparison of two versions, or of two amounts of memory. If one of the two is not known, the
    comparison is false."""

    left: Word
    """A fact (`cuda.driver`), a value captured from the line (`{wanted}`), or the value itself (`8.0`)."""
    is_: Relation = msgspec.field(name="is")
    """`at-least` or `at-most`. For versions also `newer-than`, `older-than`, `same-major`, `other-major`, and
    three relations that subtract the major version of `left` from the major version of `right`:
    `majors-below` is true if the difference equals `by`, `not-majors-below` if the difference does not equal
    `by`, and `more-majors-below` if the difference is greater than `by`."""
    right: Word
    """The other side: a fact, a captured value, or the value itself, as in `left`."""
    by: Annotated[int, Meta(ge=0, le=99)] = 0
    """Number of major versions, for `majors-below`, `not-majors-below` and `more-majors-below`."""


class LabelRule(_Part, frozen=True, kw_only=True):
    """A rule for a label of a node: the label has one of the values, or a number that is large enough."""

    name: Word
    """The name of the label, such as `nvidia.com/gpu.compute.major`."""
    values: Annotated[list[Annotated[str, Meta(max_length=63)]], Meta(max_length=16)] = []
    """The label has one of these values. Without `values` and `atLeast` any value suffices."""
    at_least: Annotated[str, Meta(max_length=63)] = ""
    """The label has this whole number or a larger one. The number may be captured from the log
    (`{needed_major}`)."""


class Test(_Part, frozen=True, kw_only=True):
    """A test has exactly one of these fields; with `log` it may also have `where`."""

    log: Template = ""
    """Text that a line of the log contains. `{name}` in the text captures the part that varies."""
    where: Annotated[list[Comparison], Meta(max_length=4)] = []
    """Comparisons with values that `log` captured from a line. All of them must be true for the same line."""
    exit_code: Annotated[int, Meta(ge=1, le=255)] | None = None
    """The exit code with which a container ended; 128 + n means that signal n ended the container. If signal
    n ended a process of a launcher, `torchrun` ends with 1, and `paddle.distributed.launch` with 256 - n."""
    fault: Fault | None = None
    """The fault class of a finding, for example `device-lost` or `application`. For a wrong class the
    error lists all classes."""
    signal: Annotated[str, Meta(max_length=63)] = ""
    """The code of a finding or of a log error, such as `xid-31` or `log-cuda-oom`."""
    framework: Framework | None = None
    """The framework that the job runs: `paddle`, `pytorch`, `tensorflow`, `jax`, `mindspore`, `vllm`."""
    request: RequestTest | None = None
    """A resource that the container requests."""
    env: EnvTest | None = None
    """A variable of the container's template."""
    compare: Comparison | None = None
    """A comparison of two facts, or of a fact and a value."""
    label: LabelRule | None = None
    """A label of the node where the container ran."""


KINDS = {one.encode_name: one.name for one in msgspec.structs.fields(Test) if one.name != "where"}
"""Fields of a test of which exactly one is given: the name that people write, and the attribute in the
code."""


class Clause(Test, frozen=True, kw_only=True):
    """A test, or `anyOf` with a list of tests."""

    any_of: Annotated[list[Test], Meta(max_length=32)] = []
    """One of these tests must be true."""


class Match(_Part, frozen=True, kw_only=True):
    """When the recipe applies."""

    all_of: Annotated[list[Clause], Meta(min_length=1, max_length=16)]
    """Clauses that must all be true. A clause is a test, or `anyOf` with a list of tests of which one must be
    true."""

    @property
    def logs(self) -> list[str]:
        """Templates that the recipe looks for in logs, each once."""
        tests = (test for clause in self.all_of for test in (clause, *clause.any_of))
        return list(dict.fromkeys(test.log for test in tests if test.log))


class Hold(StrEnum):
    NEVER = "never"
    UNLESS_PLACED = "unless-placed"
    ALWAYS = "always"


class Placement(_Part, frozen=True, kw_only=True):
    """The nodes on which the gang may run from now on."""

    avoid_node: bool = False
    """With `true`, the next start prefers other nodes than the node where the gang failed."""
    require: Annotated[list[LabelRule], Meta(max_length=8)] = []
    """The gang runs only on nodes that fulfil each of these rules."""
    forbid: Annotated[list[LabelRule], Meta(max_length=8)] = []
    """The gang does not run on nodes that fulfil one of these rules."""


class Change(_Part, frozen=True, kw_only=True):
    """Changes that Rekindle makes. For any other change of a pod template write `advise`."""

    env: Annotated[dict[str, Annotated[str, Meta(max_length=1024)]], Meta(max_length=32)] = {}
    """Variables for the new containers. The containers read them by `envFrom`, so a variable in the `env` of
    the template takes precedence."""
    placement: Placement | None = None
    """The nodes on which the gang may run."""
    hold: Hold = Hold.NEVER
    """When Rekindle leaves the job stopped: `never`; `always`; with `unless-placed`, only if no node of the
    cluster fulfils `placement`."""
    advise: Prose = ""
    """The exact change that the owner should make; `{name}` stands for a value from the log."""


class Verify(_Part, frozen=True, kw_only=True):
    """How Rekindle sees that the change helped."""

    log: Annotated[list[Template], Meta(max_length=4)] = []
    """Templates. The change has helped if the new containers print a line that one of them matches."""
    absent: Prose = ""
    """An explanation for people: the likely cause if no line of `log` appears. `recipes show` and the
    Recovery show this text; no decision depends on it."""
    steps: bool = False
    """With `true`, the first new training step proves that the change helped, unless a line of the issue
    appears before that step. If a line of the issue appears later, the next recovery counts as another of the
    `attempts`."""


class RecipeSpec(_Part, frozen=True, kw_only=True):
    """The `spec` of a Recipe object. In a recipe file these fields stand at the top level, together with
    `name`."""

    title: Sentence
    """The issue in one line."""
    source: Sentence
    """Where the issue is described, for example a document or an issue tracker."""
    match: Match
    """When the recipe applies."""
    change: Change
    """Changes that Rekindle makes if the recipe applies."""
    verify: Verify | None = None
    """How Rekindle sees that the change helped. Required if the change restarts the job."""
    attempts: Annotated[int, Meta(ge=1, le=10)] = 1
    """Maximum number of times that Rekindle tries the change for one job."""
    cost: Prose = ""
    """Cost of the change, for the people who approve it."""
    disabled: bool = False
    """With `true`, Rekindle checks the recipe and does not use it. An object with the name of a built-in
    recipe disables the built-in recipe in this way."""


class Recipe(RecipeSpec, frozen=True, kw_only=True):
    name: Annotated[str, Meta(max_length=63)]
    """Small letters, digits and `-`; unique."""
