"""The whole simulated cluster: kubelets on one of two runtimes, host files, virtual time, jobs as objects.

In: a shape, and behaviours of containers.
Out: a LocalCluster.
Touches: processes and files, or nothing in virtual time.
"""
