// Names the etcd release that the control plane tests build; holds no code of its own.
module rekindle.dev/control-plane/etcd

go 1.26.0

require go.etcd.io/etcd/server/v3 v3.6.8
