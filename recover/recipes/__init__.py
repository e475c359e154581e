"""Known issues: how one shows, what to change, how to see that it helped.

In: recipe files and objects, evidence of a failed gang.
Out: Matched or NotMatched, and what changes at the next start.
Touches: its own packaged files, and files that people name (load.py): pure otherwise.

    file -> load.py, object -> objects.py; both -> convert.py (types) -> check.py (the rest) -> Recipe
    built-in recipes + objects -> objects.py -> what is in force, and what is told on each object
    Recipe + Evidence -> match.py -> Matched | NotMatched -> wording.py, stories.known_issue

What is matched is text that a tenant wrote, so a recipe never takes a node out, and changes only the gang
that it matched. Patterns are literal templates (detectors/text/log_template.py): nothing that a person writes
can backtrack.
"""

__all__: list[str] = []
