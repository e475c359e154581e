// Names the CoreDNS release of the cluster tests; holds no code of its own.
module rekindle.dev/cluster/coredns

go 1.26.0

require github.com/coredns/coredns v1.12.4
