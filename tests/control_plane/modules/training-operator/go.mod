// Names the training-operator release that the control plane tests build; holds no code of its own.
module rekindle.dev/control-plane/training-operator

go 1.26.0

require github.com/kubeflow/training-operator v1.9.4
