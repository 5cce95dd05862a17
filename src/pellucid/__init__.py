"""Pellucid: a Transformer you can train, use, serve and see through.

Nothing heavy is imported here; each room is imported by who needs it.
"""

__version__ = "0.1.0.dev0"
