"""Binding of plans to communicators and buffers."""
