"""Generates the chart's admission policies that warn of mistyped labels and annotations, from
recover/stories/keys.py, which `rekindle doctor` and `rekindle why` read, too. For generate.py.

A policy can report less than the doctor: a value is compared with a pattern, and the nearest name is the one
with the longest common beginning, because CEL knows no distance between words. A policy has as many warnings
as validations, so only the first few names have one each.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable

from recover.k8s.kinds import NAMESPACES, NODES
from recover.stories.keys import KEYS, PREFIX, WRITTEN_BY_US, Form, Key, On, keys_of
from recover.workloads import WORKLOADS

__all__ = ["policies"]

_RESOURCES = {
    On.JOB: tuple(workload.resource for workload in WORKLOADS),
    On.NAMESPACE: (NAMESPACES,),
    On.NODE: (NODES,),
}
_CHARS = range(22, 2, -1)
"""Numbers of characters of a name, without the prefix, that are compared. The name that agrees in most of
them is the one that was probably meant."""
_TOLD_MAX = 3
"""Maximum number of names of each form that get a separate warning."""

_WIDTH, _INDENT = 120, " " * 6

_HEAD = """\
# Generated from recover/stories/keys.py by `make docs`.
#
# The policies warn people who apply a manifest of labels and annotations of Rekindle that nothing reads, and
# of unusable values. They refuse nothing. If a policy fails, the API server admits the object as without it.
"""

_POLICY = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: rekindle-warns-{on}
spec:
  failurePolicy: Ignore
  matchConstraints:
    matchPolicy: Equivalent
    resourceRules:
{rules}
  matchConditions:
  - name: says-something-to-us
    expression: >-
      [?object.metadata.?labels, ?object.metadata.?annotations].exists(given,
      given.exists(name, name.startsWith('{prefix}')))
  - name: says-something-new
    expression: >-
      request.operation == 'CREATE'
      || object.metadata.?labels != oldObject.metadata.?labels
      || object.metadata.?annotations != oldObject.metadata.?annotations
  variables:
{variables}
  validations:
{validations}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: rekindle-warns-{on}
spec:
  policyName: rekindle-warns-{on}
  validationActions: [Warn]
"""


def policies() -> str:
    """Returns the file for the chart: one policy and its binding for each kind of object."""
    return _HEAD + "---\n".join(_policy(on) for on in On)


def _policy(on: On) -> str:
    return _POLICY.format(
        on=on,
        prefix=PREFIX,
        rules="\n".join(
            f"    - apiGroups: [{json.dumps(one.group)}]\n"
            f'      apiVersions: ["*"]\n'
            f"      operations: [CREATE, UPDATE]\n"
            f"      resources: [{one.plural}]"
            for one in _RESOURCES[on]
        ),
        variables="\n".join(_variable(name, text) for name, text in _variables(on).items()),
        validations="\n".join(
            _validation(*one) for one in [*(one for form in Form for one in _names(on, form)), *_values(on)]
        ),
    )


def _variables(on: On) -> dict[str, str]:
    """Returns the policy's variables, ordered so that each needs only variables before it."""
    found = {f"{form}s": f"object.metadata.?{form}s.orValue({{}})" for form in Form}
    for form in Form:
        known = sorted({*(one.name for one in keys_of(on, form)), *WRITTEN_BY_US})
        found[_unknown(form)] = (
            f"variables.{form}s.filter(name, name.startsWith('{PREFIX}') && !(name in {_list(known)}))"
        )
    for form in Form:
        found[_readable(form)] = _list(_called(key, form, on) for key in _nearest_first(on, form))
        found[_told(form)] = _typos(on, form)
    return found


def _nearest_first(on: On, form: Form) -> list[Key]:
    """Returns the keys, ordered by how probably a name that fits several means each of them: keys of the same
    object first, then the shortest."""
    return sorted(KEYS, key=lambda one: (on not in one.on, form not in one.forms, len(one.name)))


def _called(one: Key, form: Form, on: On) -> str:
    """Returns for example `the annotation rekindle.dev/mode of a namespace`. For a key of the same object the
    object is left out."""
    where = "" if on in one.on else f" of a {one.on[0]}"
    return f"the {form if form in one.forms else one.forms[-1]} {one.name}{where}"


def _typos(on: On, form: Form) -> str:
    """Returns an expression with a sentence for each name that nothing reads, and the name with the most
    similar beginning."""
    here = ", ".join(sorted(one.name.removeprefix(PREFIX) for one in KEYS if on in one.on))
    lengths = [len(PREFIX) + chars for chars in _CHARS]
    near = (
        f"{lengths}.filter(chars, chars <= size(meant))"
        f".map(chars, variables.{_readable(form)}.filter(one, one.contains(meant.substring(0, chars))))"
        ".filter(fits, size(fits) > 0)"
    )
    listed = _text(f"Rekindle reads these on a {on}: {here}")
    hint = f"(size(near) > 0 ? 'did you mean ' + near[0][0] + '?' : {listed})"
    return (
        f"variables.{_unknown(form)}.map(name, [name.lowerAscii().replace('_', '-')].map(meant, {near})"
        f".map(near, '{form} ' + name + ': Rekindle reads no {form} of this name there; ' + {hint})[0])"
    )


def _names(on: On, form: Form) -> Iterable[tuple[str, str, str]]:
    """Yields a warning for each of the first names. The last warning counts the names without one."""
    told = f"variables.{_told(form)}"
    plain = f"one {form} of this {on} begins with {PREFIX}, and Rekindle does not read this {form}"
    for number in range(_TOLD_MAX):
        message = f"{told}[{number}]"
        if number == _TOLD_MAX - 1:
            rest = f"size({told}) - {_TOLD_MAX}"
            message += f" + ({rest} > 0 ? ' (and ' + string({rest}) + ' further names)' : '')"
        yield f"size({told}) <= {number}", plain, message


def _values(on: On) -> Iterable[tuple[str, str, str]]:
    for form in Form:
        for one in keys_of(on, form):
            if one.pattern:
                given, after = f"variables.{form}s", f"expected {one.expected}; {one.instead}"
                yield (
                    f"!('{one.name}' in {given}) || {given}['{one.name}'].matches(r'^(?:{one.pattern})$')",
                    f"{form} {one.name}: {after}",
                    f"'{form} {one.name}: ' + {given}['{one.name}'] + {_text(f': {after}')}",
                )


def _unknown(form: Form) -> str:
    return f"unknown{form.capitalize()}s"


def _readable(form: Form) -> str:
    return f"readableAs{form.capitalize()}"


def _told(form: Form) -> str:
    return f"told{form.capitalize()}s"


def _variable(name: str, text: str) -> str:
    return f"  - name: {name}\n    expression: >-\n{_folded(text)}"


def _validation(expression: str, message: str, with_value: str) -> str:
    """Returns a validation. The API server uses the plain message if the value is too long, or has more than
    one line."""
    return (
        f"  - expression: >-\n{_folded(expression)}\n"
        f"    message: {json.dumps(message)}\n"
        f"    messageExpression: >-\n{_folded(with_value)}"
    )


def _folded(text: str) -> str:
    """Returns the lines of a folded YAML scalar. YAML joins them to one line; a line ends at a single space,
    and at no hyphen."""
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(_text(text) for text in texts)}]"


def _text(text: str) -> str:
    """Returns the text as a CEL string: CEL knows all of JSON's escapes."""
    return json.dumps(text)
