"""Where the chart is installed: what our pods may do, what they cost, and what they know of the node. One
cluster for all."""
