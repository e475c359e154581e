"""The commands of the controller's side, one file *_command.py for each; nobody imports it but entry points.

In: arguments.
Out: what is printed, and an exit status.
Touches: everything below it, and the terminal. `controller`, `cleanup`, `pause`, `resume`, `hold`, `release`
and `undo` write to the cluster.
"""
