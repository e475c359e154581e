"""The controller of Rekindle: from API objects to decisions to writes. See ARCHITECTURE.md for the flow."""
