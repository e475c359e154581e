"""The agent's state as pure folds over events: findings of a node, containers, who holds which device.

In: drafts, lines, facts of the host.
Out: NodeHealth.status, within its size.
Touches: nothing: pure.
"""
