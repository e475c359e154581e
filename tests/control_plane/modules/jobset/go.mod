// Names the JobSet release that the control plane tests build; holds no code of its own.
module rekindle.dev/control-plane/jobset

go 1.26.0

require sigs.k8s.io/jobset v0.11.0
