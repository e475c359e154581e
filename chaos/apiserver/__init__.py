"""A simulated Kubernetes API server: store, versions, preconditions, watches, schemas, REST.

In: requests.
Out: answers in the wording of Kubernetes.
Touches: memory, and loopback for rest.py.
"""
