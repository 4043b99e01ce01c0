"""Attention and Transformers, small enough to read and equal to the references.

Import each name from the module that holds it, so that you can find its source:
``from attnlib.functional import attention``.
"""

__version__ = "0.1.0"
