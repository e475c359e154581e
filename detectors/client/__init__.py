"""The small Kubernetes REST and watch client, and the credentials for the API server.

In: credentials, kinds, bodies and patches.
Out: raw objects, watch events, ApiError, ReplyLost and AnswerTooLarge.
Touches: the network, and the files of credentials.
"""
