"""Fluid model of messages over shared links: latency first, then max-min fair rates."""

from __future__ import annotations

from collplan.executors.cost.fluid.simulation import Arrivals, simulate_messages

__all__ = ["Arrivals", "simulate_messages"]
