"""The node agent of Rekindle, and what agent and controller share (contract, small API client, catalogue)."""

__version__ = "0.1.0"
