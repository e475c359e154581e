"""Turns text and plain data into values: sizes, templates, strict structs.

In: text, and TOML or JSON that is parsed already.
Out: values, or an error that says exactly what is wrong.
Touches: nothing: pure.
"""
