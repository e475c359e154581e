"""Reads the evidence on the node. Each source reports that it is covered, or why it is blind.

In: /dev/kmsg, NVML, /sys (ports, crash records), /proc (pressure, processes, the driver's GPUs), the mounted
volumes of pods, log files, the kubelet's socket.
Out: events for the folds, and coverage.
Touches: files, devices and sockets of the node, and child processes that may be lost.
"""
