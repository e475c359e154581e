"""Generates the page docs/reference/recipes.md, from the structs and files of recover/recipes."""

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

A recipe describes a known issue: how to recognise the issue, what to change, and how to see that the
change helped. The built-in recipes are TOML files. You write your own recipes as `Recipe` objects in the
cluster, with the same fields. While you try a recipe, it may also be a file.

```
rekindle recipes list [FILE|FOLDER]...     # lists the built-in recipes and your own
rekindle recipes show RECIPE               # checks a recipe and describes it in plain words
rekindle recipes show RECIPE -o yaml       # prints the object for kubectl apply; -o toml prints the file
rekindle recipes test RECIPE --log FILE    # tries a recipe on a log, and on other facts that you give
```

RECIPE is the name of a built-in recipe, or a file: TOML, or an object in YAML or JSON. `list` also takes a
folder, and reads its `*.toml` files. `test` has these options, and you can repeat most of them:
`--log FILE` (`-` is standard input), `--request RESOURCE=COUNT`, `--env NAME=VALUE` (a variable of the
template), `--exit-code N`, `--fact NAME=VALUE`, `--label NAME=VALUE` (a label of the node),
`--signal CODE`, `--fault CLASS`, `--framework NAME`. With `-o json`, all three commands print JSON.

| exit status | meaning |
|---|---|
| 0 | the command printed its answer; for `test`: the recipe matches |
| 1 | for `test` only: the recipe does not match |
| 2 | a recipe or an input cannot be used. Standard error says why, and `list` still lists the other recipes |

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
kubectl get recipes -o wide                # ACCEPTED: True if Rekindle uses the recipe; MESSAGE: why not
```

The `metadata.name` of the object is the name of the recipe. The `spec` has all other fields of a file. The
API server refuses values of a wrong type at once. The controller makes all other checks of
`rekindle recipes show`, and writes the condition `Accepted` into the status. Its message names the field,
the value and the expected value. If Rekindle cannot use a recipe, it still uses all other recipes. If you
edit a recipe so that Rekindle cannot use it any more, Rekindle does not use the earlier text either.

| Accepted | reason | meaning |
|---|---|---|
| True | `Used` | Rekindle uses the recipe |
| True | `Disabled` | `spec.disabled` is true: Rekindle checks the recipe and does not use it |
| False | `Invalid` | the message says what is wrong. Rekindle uses the built-in recipe of this name, if any |
| False | `TooMany` | the limits are 32 objects and 16 KiB of templates in all. Rekindle uses the older ones |

- An object with the name of a built-in recipe replaces the built-in recipe. To disable a built-in recipe,
  apply the output of `rekindle recipes show NAME -o yaml`, after you have added `disabled: true` to its
  `spec`.
- A change stays for all later starts of a job. To revert the changes of a recipe at the next start of each
  job, set `disabled: true` in the recipe. If you delete a recipe, its changes stay.
- Agents know the lines of the built-in recipes. The controller writes the templates of your recipes into
  the `spec` of each NodeHealth. If you change a template, the controller writes the NodeHealth of each node
  with accelerators once; all more urgent writes go first.
- kubectl refuses fields that do not exist. With other clients (and `--validate=ignore`) the API server
  drops such fields silently, and the controller does not see them: check with
  `kubectl get recipe NAME -o yaml`.
- A person with the permission to write Recipes can set variables in the containers of every job that
  Rekindle restarts. The chart gives this permission to nobody. Give it only to people who may change all
  these jobs.

## Which failures count

Rekindle tries all recipes once for each restart of a job, before the job starts again. If a fault of a node
explains the failure, or if somebody other than the job ended a pod, the logs and exit codes are no evidence:
then no `log` and no `exitCode` is true, and `signal` is true only for codes of findings. If the job
made training steps for more than a minute after the line that `log` found, the issue does not keep the job
from training: a recipe whose action is `hold` then only gives its advice.

## Templates

`log` and `verify.log` are templates: literal text that a line of the log must contain, with placeholders.
A template is no regular expression: it ignores upper and lower case and the colour codes of terminals,
and matches only whole words: `float16 is` does not match `bfloat16 is`. Each placeholder needs text before
it, and each name may occur only once.

| placeholder | matches |
|---|---|
| `{name}` | a word, up to the text that follows it |
| `{name:text}` | anything up to the text that follows it, at most 128 characters |
| `{name:integer}` | digits |
| `{name:number}` | a number or version: 8.0, 12.4.1 |
| `{name:size}` | an amount of memory: 25.5MB, 16 GiB; all units are binary |
| `{{`, `}}` | one brace, as literal text |
"""

_FACTS_HEAD = """\
## Facts

A comparison can name these facts:

| fact | kind | meaning |
|---|---|---|"""

_SOURCES = """\
Rekindle reads `cuda.driver` and `gpu.compute` from labels of the node:
`nvidia.com/cuda.runtime-version.*` or `nvidia.com/cuda.runtime.*` of NVIDIA's feature discovery, else
`cuda-major-version` and `cuda-minor-version`; and `nvidia.com/gpu.compute.*`. (The labels
`nvidia.com/cuda.driver.*` contain the version of the driver, such as 550.54.) `cuda.runtime` is the value of
the annotation `rekindle.dev/cuda-runtime` of the job, else of the variable `CUDA_VERSION` of the template.
`vgpu.baseline` is the value of the label `rekindle.dev/vgpu-baseline` of the node. The agent measures
`gpu.memory.free`. For `rekindle recipes test`, you give facts by `--fact` and labels by `--label`."""

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
    lines += ["", _SOURCES]
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
    """Returns the text of the default. Returns an empty string if the field is optional and empty."""
    if field.required:
        return "required"
    value = field.default
    return (
        f"`{msgspec.json.encode(value).decode()}`" if value not in (None, "", (), msgspec.NODEFAULT) else ""
    )
