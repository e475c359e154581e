// Names the Helm 3 release that the chart's tests build; holds no code of its own.
module rekindle.dev/control-plane/helm-3

go 1.26.0

require helm.sh/helm/v3 v3.22.0
