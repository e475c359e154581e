"""The API objects in plain words: for a person who asks why. Pure; cli.py reads the objects and prints."""
