"""Reaching the API: the only room of the controller that imports a Kubernetes client."""
