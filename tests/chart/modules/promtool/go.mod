// Names the Prometheus release whose promtool the alerts are tried with; holds no code of its own.
module rekindle.dev/chart/promtool

go 1.26.0

require github.com/prometheus/prometheus v0.313.5
