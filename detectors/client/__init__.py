"""The small Kubernetes REST and watch client, and who we are to the API server.

In: credentials, kinds, bodies and patches.
Out: raw objects, watch events, ApiError and ReplyLost.
Touches: the network, and the files of credentials.
"""
