"""Known issues: how one shows, what to change, how to see that it helped.

The TOML files beside this one are built in. People's own are Recipe objects, or files, in the same words.

    file -> load.py, object -> objects.py; both -> convert.py (types) -> check.py (the rest) -> model.Recipe
    built-in recipes + objects -> objects.py -> what is in force, and what is told on each object
    Recipe + Evidence -> match.py -> Matched | NotMatched -> words.py -> cli.py

What is matched is text that a tenant wrote, so a recipe never takes a node out, and changes only the gang
that it matched. Patterns are literal templates (detectors/log_template.py): nothing that a person writes can
backtrack.
"""

__all__: list[str] = []
