"""Reads the cluster, or a manifest, at one moment for commands; finds the job or node that a person named.

In: a Cluster, or files.
Out: Snapshot; the documents and jobs of a manifest; what could not be read, and why.
Touches: the network and files, to read only.
"""
