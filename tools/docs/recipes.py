"""The page docs/reference/recipes.md, from the structs and files of recover/recipes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import msgspec

import recover.api.recipe_spec
from recover.recipes.load import built_in
from recover.recipes.values import FACTS
from tools.docs.structs import field_name, fields_of, one_line

__all__ = ["recipes_page"]

_HEAD = """\
# Recipes

Generated from `recover/recipes/` by `make docs`.

A recipe is a known issue: how it shows, what to change, how to see that it helped. The built-in ones are
TOML files; your own are `Recipe` objects in the cluster, in the same words, or files as long as you try them.

```
rekindle recipes list [FILE|FOLDER]...     # the built-in ones and your own
rekindle recipes show RECIPE               # checks one and tells it in plain words
rekindle recipes show RECIPE -o yaml       # prints it as an object for kubectl apply; -o toml a built-in file
rekindle recipes test RECIPE --log FILE    # tries one on a log, and on what else you know
```

RECIPE is a built-in recipe's name or a file: TOML, or an object in YAML or JSON; of a folder its `*.toml`
are read. `test` takes, most of them more than once: `--log FILE` (`-` is standard input),
`--request RESOURCE=COUNT`, `--env NAME=VALUE` (the template's), `--exit-code N`, `--fact NAME=VALUE`,
`--label NAME=VALUE` (of the node), `--signal CODE`, `--fault CLASS`,
`--framework NAME`. All three print JSON with `-o json`.

| exit status | meaning |
|---|---|
| 0 | answered; of `test`: the recipe matches |
| 1 | `test` only: it does not match |
| 2 | a recipe or an input cannot be used; standard error says why, and `list` lists the others all the same |

## An example

```toml
name = "small-shm"
title = "Workers of the data loader die of a small /dev/shm"
source = "our runbook, page 12"

[[match.allOf]]
log = "unable to write to file </torch_{file}>: No space left on device"

[[match.allOf]]
anyOf = [{ exitCode = 135 }, { exitCode = 1 }]

[change]
hold = "always"
advise = "Mount an emptyDir with medium Memory at /dev/shm. The file was torch_{file}."
```

## In the cluster

```
rekindle recipes show small-shm.toml -o yaml | kubectl apply -f -
kubectl get recipes                        # or rcp; Accepted tells whether each is used, -o wide why not
```

An object's `metadata.name` is the recipe's name, and its `spec` all the rest of a file. The API server
refuses wrong types at once. The controller checks all the rest as `rekindle recipes show` does, and answers
with the condition `Accepted` in the status; its message names the field, its value and what was expected.
One that cannot be used never stops the others. A good one that is edited into a bad one is no longer used.

| Accepted | reason | meaning |
|---|---|---|
| True | `Used` | it is in force |
| True | `Disabled` | `spec.disabled` is true: it is checked and not used |
| False | `Invalid` | the message says what is wrong; a built-in recipe of this name stays in force |
| False | `TooMany` | agents look for the lines of 32 recipes, 16 KiB at most; older objects come first |

- An object with the name of a built-in recipe takes its place. To switch a built-in one off, apply what
  `rekindle recipes show NAME -o yaml` prints, after you have added `disabled: true` to its `spec`.
- Agents know the lines of the built-in recipes. The templates of yours are told to them in the `spec` of each
  node's NodeHealth: one write for each accelerator node when a template changes, after all more urgent ones.
- kubectl refuses fields that do not exist. With other clients (and `--validate=ignore`) the API server drops
  them silently, and the controller does not see them: check with `kubectl get recipe NAME -o yaml`.
- Whoever may write Recipes may set variables in the containers of every job that Rekindle restarts. The chart
  grants that to nobody; grant it as you would grant writing to all those jobs.

## Templates

`log` and `verify.log` are literal text that a line contains, with placeholders; they are no regular
expressions. Upper and lower case are the same, colours are not seen, and a template matches whole words:
`float16 is` does not match in `bfloat16 is`. A placeholder stands after text, and each name once.

| placeholder | takes |
|---|---|
| `{name}` | a word, up to the text that follows it |
| `{name:text}` | anything up to the text that follows it, at most 128 characters |
| `{name:integer}` | digits |
| `{name:number}` | a number or version: 8.0, 12.4.1 |
| `{name:size}` | an amount of memory: 25.5MB, 16 GiB; all units are binary |
| `{{`, `}}` | a brace |
"""

_FACTS_HEAD = """\
## Facts

What a comparison can name. A node's labels tell `cuda.driver` (NVIDIA's feature discovery calls it
`cuda.runtime`; else `cuda-major-version` and `cuda-minor-version`) and `gpu.compute`; the others are given.

| fact | kind | meaning |
|---|---|---|"""

_PLACES = {
    "RecipeSpec": "Top level",
    "Match": "`[match]`",
    "Test": "A test",
    "RequestTest": "`request`",
    "EnvTest": "`env` of a test",
    "Comparison": "`compare`, and each of `where`",
    "Change": "`[change]`",
    "Placement": "`[change.placement]`",
    "LabelRule": "`label`, and each of `require` and `forbid`",
    "Verify": "`[verify]`",
}


def recipes_page() -> str:
    lines = [_HEAD, *_vocabulary(), _FACTS_HEAD]
    for name, fact in FACTS.items():
        lines.append(f"| `{name}` | {fact.measure.value} | {fact.meaning} |")
    lines += ["", "## Built-in recipes", "", "| name | issue | known from |", "|---|---|---|"]
    for name, recipe in built_in().items():
        lines.append(f"| `{name}` | {one_line(recipe.title)} | {one_line(recipe.source)} |")
    return "\n".join(lines) + "\n"


def _vocabulary() -> Iterator[str]:
    source = ast.parse(inspect.getsource(recover.api.recipe_spec))
    classes = {node.name: node for node in source.body if isinstance(node, ast.ClassDef)}
    for struct_name, place in _PLACES.items():
        struct = getattr(recover.api.recipe_spec, struct_name)
        known = {one.name: one for one in msgspec.structs.fields(struct)}
        yield f"## {place}"
        yield ""
        yield one_line(ast.get_docstring(classes[struct_name]) or "")
        yield ""
        yield "| field | default | meaning |"
        yield "|---|---|---|"
        for field, meaning in fields_of(classes[struct_name]):
            one = known[field_name(field)]
            yield f"| `{one.encode_name}` | {_default(one)} | {one_line(meaning)} |"
        yield ""


def _default(field: msgspec.structs.FieldInfo) -> str:
    """Nothing where a field is optional and empty."""
    if field.required:
        return "required"
    value = field.default
    return (
        f"`{msgspec.json.encode(value).decode()}`" if value not in (None, "", (), msgspec.NODEFAULT) else ""
    )
