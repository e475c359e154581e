"""`rekindle doctor` without a job: whether Rekindle itself is installed as it must be."""
