"""`rekindle read-log`: what the agent would read in a training's log."""
