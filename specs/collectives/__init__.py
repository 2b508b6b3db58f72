"""Collectives: kinds with their fields, counts, datatypes and operations."""
