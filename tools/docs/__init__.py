"""Generates pages and files from the code, so that they always agree with the code: `make docs`."""
