"""The lines that the soak prints: one for each fault, and a summary. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from chaos.rigs.torch_soak.rounds import Outcome

__all__ = ["line", "summary"]


def line(number: int, outcome: Outcome) -> str:
    phases = ", ".join(f"{span.phase} {span.seconds:.1f}" for span in outcome.phases)
    verdict = f"WRONG: {'; '.join(outcome.wrong)}" if outcome.wrong else "ok"
    return (
        f"{number:3}  {outcome.words}; seen as {outcome.fault}; step {outcome.last_step} -> checkpoint "
        f"{outcome.chosen}, lost {outcome.lost_steps} of at most {outcome.lost_steps_max} (a save takes up "
        f"to {outcome.save_steps} steps); {outcome.attempts} attempt(s), {outcome.seconds:.1f} s ({phases}); "
        f"{verdict}"
    )


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """Returns the summary. `outcomes` has at least one outcome."""
    kinds = Counter(str(o.kind) for o in outcomes)
    worst = max(outcomes, key=lambda o: o.lost_steps - o.lost_steps_max)
    same = sum(o.lost_steps == o.told_lost_steps for o in outcomes)
    named = [o.first_lost for o in outcomes if o.first_lost is not None]
    seconds = sorted(o.seconds for o in outcomes)
    return [
        f"{len(outcomes)} faults, {sum(o.in_save for o in outcomes)} of them in a save: "
        + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()),
        f"lost steps: {max(o.lost_steps for o in outcomes)} at most; nearest to its bound: "
        f"{worst.lost_steps} of {worst.lost_steps_max}; the Recovery tells the same number in {same} of "
        f"{len(outcomes)}, and names the killed rank as the first one lost in {sum(named)} of {len(named)}",
        f"fault to first new step: p50 {_quantile(seconds, 0.5):.1f} s, p99 {_quantile(seconds, 0.99):.1f} s",
        f"{sum(bool(o.wrong) for o in outcomes)} of {len(outcomes)} faults went wrong",
    ]


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
