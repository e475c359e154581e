"""`rekindle enable`: a job's manifest as it must be for Rekindle to restart it. No cluster is changed."""
