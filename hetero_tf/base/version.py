"""The version of the package, which every package may import."""

__version__ = "0.2.0"
