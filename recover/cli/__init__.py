"""Commands of the controller's side, one file *_command.py for each. Only the entry points import this room.

In: arguments.
Out: printed text, and an exit status.
Touches: everything below it, and the terminal. `controller`, `cleanup`, `pause`, `resume`, `hold`, `release`
and `undo` write to the cluster.
"""
