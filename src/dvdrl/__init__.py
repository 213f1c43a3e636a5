"""Diversity via Determinants: populations of policies that are all good and all different."""

__version__ = "0.1.0"
