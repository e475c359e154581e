"""Reads the node. Only the modules of this room do so; each reports what it covers, or why it is blind.

In: /dev/kmsg, NVML, log files, the kubelet's socket.
Out: events for the folds, and coverage.
Touches: files, devices and sockets of the node, and child processes that may be lost.
"""
