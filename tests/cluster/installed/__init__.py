"""Tests on a cluster with the chart installed: what Rekindle's pods may do, what they cost, and what they
know about the node. All tests share one cluster."""
