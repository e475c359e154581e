"""The only modules of the agent that read the node; each says what it covers, or why it is blind.

In: /dev/kmsg, NVML, log files, the kubelet's socket.
Out: events for the folds, and coverage.
Touches: files, devices and sockets of the node, and child processes that may be lost.
"""
