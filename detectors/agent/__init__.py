"""The node agent put together: sources to folds, folds to the API; and its command.

In: arguments and settings.
Out: writes of NodeHealth.status.
Touches: everything below it.
"""
