// Names the KWOK release that the control plane tests build; holds no code of its own.
module rekindle.dev/control-plane/kwok

go 1.26.0

require sigs.k8s.io/kwok v0.7.0
