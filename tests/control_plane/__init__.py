"""A real Kubernetes control plane for the tests: built from Go modules, started and ended by us."""
