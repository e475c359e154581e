"""A real Kubernetes cluster for the tests, as root on one machine: control plane, nodes, pods with GPUs."""
