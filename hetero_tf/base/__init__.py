"""Shared by all packages: errors, seeds, the plug-in registry, the console, threads and files."""
