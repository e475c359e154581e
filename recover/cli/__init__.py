"""Commands of the controller's side, in the files *_command.py. Pairs such as pause and resume share one.

No other room of recover/ imports this room. chaos/ imports parts of it, such as the options.

In: arguments.
Out: printed text, and an exit status.
Touches: everything below it, and the terminal. `controller`, `cleanup`, `pause`, `resume`, `hold`, `release`
and `undo` write to the cluster.
"""
