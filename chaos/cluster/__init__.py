"""The simulated Kubernetes cluster: store and API, scheduler, job controllers, kubelets, two runtimes."""
