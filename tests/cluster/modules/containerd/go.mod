// Names the containerd release of the cluster tests' nodes; holds no code of its own.
module rekindle.dev/cluster/containerd

go 1.26.0

require github.com/containerd/containerd/v2 v2.2.1
