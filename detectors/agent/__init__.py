"""Connects the parts of the node agent: sources to folds, folds to the API; and defines its command.

In: arguments and settings.
Out: writes of NodeHealth.status.
Touches: everything below it.
"""
