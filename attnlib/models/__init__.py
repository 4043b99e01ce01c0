"""Whole Transformers, each a small file over the same blocks."""
