"""Accesses the API server: client, list and watch, the lease, and writes that only the holder of the lease
sends.

In: credentials, kinds, bodies.
Out: raw objects, answers, Transient, Permanent, NotLeaderError.
Touches: the network. The only room that imports a Kubernetes client.
"""
