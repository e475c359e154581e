"""Known issues: how to recognise an issue, what to change, how to see that the change helped.

In: recipe files and objects, evidence of a failed gang.
Out: Matched or NotMatched, and what changes at the next start.
Touches: its own packaged files, and files that people name (load.py, given.py): pure otherwise.

    file -> load.py, object -> objects.py; both -> convert.py (types) -> check.py (the rest) -> Recipe
    built-in recipes + objects -> objects.py -> recipes in force, and the condition of each object
    Recipe + Evidence -> match.py -> Matched | NotMatched -> wording.py, stories.known_issue

Recipes match text that a tenant wrote, so a recipe never quarantines a node, and changes only the gang that
it matched. Patterns are literal templates (detectors/text/log_template.py): nothing that a person writes can
backtrack.
"""

__all__: list[str] = []
