"""Provides facts about faults and logs as TOML rows that people edit; each row names its source.

In: the packaged rows, and a user's own file.
Out: catalogues: Xids, NVLink bits, first errors, steps, lines of recipes.
Touches: its own packaged files, once, and the user's file: pure otherwise.
"""
