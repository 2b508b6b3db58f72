"""Binding of plans to communicators and buffers: prepare, agree, acquire, bind."""
