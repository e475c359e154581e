"""Tells the API objects in plain words to a person who asks why; and lists what people may write where.

In: objects and views.
Out: Story: lines, tones, commands.
Touches: nothing: pure.
"""
