"""Known issues: how one shows, what to change, how to see that it helped.

A recipe is one TOML file: the files beside this one are built in, others are people's own, in the same words.

    file -> load.py (TOML) -> check.py (what types cannot say) -> model.Recipe
    Recipe + Evidence -> match.py -> Matched | NotMatched -> words.py -> cli.py

What is matched is text that a tenant wrote, so a recipe never takes a node out, and changes only the gang
that it matched. Patterns are literal templates (detectors/log_template.py): nothing that a person writes can
backtrack.
"""

__all__: list[str] = []
