"""Tells in plain words what a recipe contains, and whether it matches, for `rekindle recipes` and the
reference page. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recover.api.recipe_spec import (
    Comparison,
    EnvIs,
    EnvTest,
    Recipe,
    Relation,
    RequestIs,
    RequestTest,
    Test,
    Verify,
)
from recover.recipes.match import Hit, Matched, NotMatched
from recover.recipes.values import FACTS
from recover.recipes.wording import changed, one_of, rule_words
from recover.stories.words import Line, Section, Story, Tone, counted

__all__ = ["change_of", "condition_of_clause", "story", "story_of_answer", "verified", "when"]

_LINE_CHARS_MAX = 300
_ONE_OF = "one of these:"


def story(recipe: Recipe) -> Story:
    """Returns everything that the recipe contains."""
    sections = [
        Section("When all of these are true", when(recipe)),
        *([Section("Facts in these conditions", facts)] if (facts := _facts(recipe)) else []),
        Section("The change", tuple(Line(text) for text in change_of(recipe, {}))),
        Section("How the change is verified", verified(recipe)),
        Section("Known from", (Line(recipe.source),)),
    ]
    return Story(recipe.name, Line(_title(recipe)), tuple(sections), ())


def story_of_answer(answer: Matched | NotMatched) -> Story:
    """Returns what matched or did not match, and what Rekindle would do next."""
    recipe = answer.recipe
    held = tuple(line for hit in answer.hits for line in _hit(hit))
    if isinstance(answer, NotMatched):
        missing = tuple(
            Line(text, Tone.BAD if index == 0 else Tone.DETAIL)
            for alternatives in answer.why
            for index, text in enumerate(_missing(alternatives))
        )
        sections = [Section("Missing", missing)]
        sections += [Section("Matching parts", held)] if held else []
        return Story(
            recipe.name, Line(f"does not match: {_title(recipe)}", Tone.WAITING), tuple(sections), ()
        )
    change = tuple(Line(text) for text in change_of(recipe, answer.captured))
    notes = tuple(Line(text, Tone.BAD) for text in _explicit(answer))
    sections = [
        Section("Matches", held),
        Section("The change that Rekindle would make", change + notes),
        Section("How the change would be verified", verified(recipe)),
    ]
    return Story(recipe.name, Line(f"matches: {_title(recipe)}", Tone.GOOD), tuple(sections), ())


def _title(recipe: Recipe) -> str:
    return f"{recipe.title} (switched off)" if recipe.disabled else recipe.title


def when(recipe: Recipe) -> tuple[Line, ...]:
    """Returns one line for each clause. The alternatives of a clause are detail lines below it."""
    lines: list[Line] = []
    for clause in recipe.match.all_of:
        if clause.any_of:
            lines.append(Line(_ONE_OF))
            lines += [Line(_condition_of(test), Tone.DETAIL) for test in clause.any_of]
        else:
            lines.append(Line(_condition_of(clause)))
    return tuple(lines)


def change_of(recipe: Recipe, captured: dict[str, str]) -> tuple[str, ...]:
    """Returns what the recipe changes and advises, and what this costs."""
    texts = changed(recipe.change, captured)
    return (*texts, f"cost: {recipe.cost}") if recipe.cost else texts


def verified(recipe: Recipe) -> tuple[Line, ...]:
    """Returns how a change is verified, and when it is given up. If there are two proofs, they are detail
    lines below a line that says that one is enough."""
    if recipe.verify is None:
        return (Line("not at all: only the owner of the job can make the change"),)
    proofs = [*_proofs(recipe.verify)]
    if len(proofs) == 1:
        lines = [Line(f"by {proofs[0]}")]
    else:
        lines = [Line("one of these proofs is enough:"), *(Line(proof, Tone.DETAIL) for proof in proofs)]
    return (*lines, Line(f"given up after {counted(recipe.attempts, 'attempt')}"))


def _proofs(verify: Verify) -> Iterator[str]:
    if verify.log:
        cause = f". If no such line appears, the likely cause is: {verify.absent}" if verify.absent else ""
        yield f"a log line with {one_of(verify.log)}{cause}"
    if verify.steps:
        yield "the first new training step, if no log line of this issue has appeared again before that step"


def _explicit(answer: Matched) -> list[str]:
    """Returns one sentence for each variable that the template itself sets. The recipe's change does not
    override it."""
    texts = []
    for name, value in answer.explicit_env.items():
        wanted = answer.recipe.change.env[name]
        texts.append(
            f"the template already sets {name}={wanted}: the change has no effect"
            if value == wanted
            else f"the template sets {name}={value}, and env takes precedence over envFrom, so the "
            f"process would not receive {wanted!r}; change or remove {name} in the template"
        )
    return texts


def _hit(hit: Hit) -> tuple[Line, ...]:
    if hit.line is None:
        return (Line(hit.said),)
    place = " ".join(part for part in (hit.line.file, f"line {hit.line.number}") if part)
    rank = f" (rank {hit.line.rank})" if hit.line.rank is not None else ""
    text = hit.line.text.strip()
    shown = text if len(text) <= _LINE_CHARS_MAX else text[:_LINE_CHARS_MAX] + "..."
    details = [", ".join(f"{name} = {value}" for name, value in hit.captured.items()), hit.said]
    return (Line(f"{place}{rank}: {shown}"), *(Line(text, Tone.DETAIL) for text in details if text))


def _missing(alternatives: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the only reason, or a head line and all reasons, each once."""
    texts = tuple(dict.fromkeys(alternatives))
    return texts if len(texts) == 1 else ("none of these is true:", *texts)


# --- tests --------------------------------------------------------------------------------------------------


def condition_of_clause(alternatives: Sequence[Test]) -> str:
    """Returns on one line what must be true: the only test, or one of the alternatives."""
    texts = [*map(_condition_of, alternatives)]
    return texts[0] if len(texts) == 1 else f"{_ONE_OF} {'; '.join(texts)}"


def _condition_of(test: Test) -> str:
    """Returns what must be true."""
    if test.log:
        where = "".join(f", where {_comparison(comparison)}" for comparison in test.where)
        return f"the log has {test.log!r}{where}"
    if test.request is not None:
        return _request(test.request)
    if test.env is not None:
        return _env(test.env)
    if test.compare is not None:
        return _comparison(test.compare)
    if test.label is not None:
        return f"on the node {rule_words(test.label, {})}"
    single = {
        "the exit code is": test.exit_code,
        "the fault is": test.fault,
        "there is the signal": test.signal,
        "the framework is": test.framework,
    }
    return next(f"{words} {value}" for words, value in single.items() if value)


def _request(test: RequestTest) -> str:
    match test.is_:
        case RequestIs.REQUESTED:
            return f"{test.name} is requested"
        case RequestIs.NOT_REQUESTED:
            return f"{test.name} is not requested"
        case RequestIs.MULTIPLE_OF:
            return f"{test.name} is requested in an amount that is a multiple of {test.value}"
        case RequestIs.NOT_MULTIPLE_OF:
            return f"{test.name} is requested in an amount that is not a multiple of {test.value}"


def _env(test: EnvTest) -> str:
    match test.is_:
        case EnvIs.SET | EnvIs.UNSET:
            return f"the template's env {test.name} is {test.is_}"
        case EnvIs.EQUALS:
            return f"the template's env {test.name} is {test.value!r}"
        case EnvIs.NOT_EQUALS:
            return f"the template's env {test.name} is not {test.value!r}"


_RELATIONS = {
    Relation.AT_LEAST: "is at least",
    Relation.AT_MOST: "is at most",
    Relation.NEWER_THAN: "is newer than",
    Relation.OLDER_THAN: "is older than",
    Relation.SAME_MAJOR: "has the same major version as",
    Relation.OTHER_MAJOR: "has a different major version than",
    Relation.MAJORS_BELOW: "is {by} below",
    Relation.NOT_MAJORS_BELOW: "is not {by} below",
    Relation.MORE_MAJORS_BELOW: "is more than {by} below",
}


def _comparison(comparison: Comparison) -> str:
    by = counted(comparison.by, "major version")
    return f"{comparison.left} {_RELATIONS[comparison.is_].format(by=by)} {comparison.right}"


def _facts(recipe: Recipe) -> tuple[Line, ...]:
    """Returns the meanings of the facts that the recipe compares: their names are Rekindle's own, and say
    little to the owner of a job."""
    tests = [test for clause in recipe.match.all_of for test in (clause.any_of or (clause,))]
    found = [one for test in tests for one in (*test.where, *([test.compare] if test.compare else []))]
    named = {side for one in found for side in (one.left, one.right)}
    return tuple(Line(f"{name}: {fact.meaning}") for name, fact in FACTS.items() if name in named)
