"""Sources: the only files of the agent that read the node. Each says what it covers, or why it is blind."""
