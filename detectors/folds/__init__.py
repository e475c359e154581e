"""Keeps the agent's state as pure folds over events: findings of a node, containers, the pods that have each
device.

In: drafts, lines, samples, facts of the host.
Out: NodeHealth.status, within its size.
Touches: nothing: pure.
"""
