"""The program `rekindle`: finds a command by its entry point and loads only that one; exit statuses.

In: the command line.
Out: an exit status.
Touches: standard output and errors; no typer, no rich.
"""
