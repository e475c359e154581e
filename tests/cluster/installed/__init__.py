"""Tests on a cluster with the chart installed: permissions and cost of Rekindle's pods, and their knowledge
about the node. All tests share one cluster."""
