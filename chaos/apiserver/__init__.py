"""A simulated Kubernetes API server: store, versions, preconditions, watches, schemas, REST.

In: requests.
Out: answers worded as Kubernetes does it.
Touches: memory, and loopback for rest.py.
"""
