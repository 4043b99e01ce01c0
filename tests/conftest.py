"""What every test may ask for."""

from browser import browser

__all__ = ["browser"]
