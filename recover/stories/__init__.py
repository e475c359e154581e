"""The API objects in plain words, for a person who asks why; and what people may write where.

In: objects and views.
Out: Story: lines, tones, commands.
Touches: nothing: pure.
"""
