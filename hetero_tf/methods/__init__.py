"""Plug-ins that define a federated method: one folder per kind."""
