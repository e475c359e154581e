"""`rekindle doctor` without a job: checks whether Rekindle itself is installed correctly."""
