"""Whether a node may be used again after a repair: checks on the node, each in a process of its own."""
