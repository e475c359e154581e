// Names the Helm 4 release that the chart's tests build; holds no code of its own.
module rekindle.dev/control-plane/helm-4

go 1.26.0

require helm.sh/helm/v4 v4.3.1
