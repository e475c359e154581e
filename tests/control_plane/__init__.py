"""A real Kubernetes control plane for the tests. The tests build its programs from Go modules, start them and
end them."""
