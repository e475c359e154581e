"""`rekindle doctor`: what will not work when a job fails, told before it does. No cluster is changed."""
