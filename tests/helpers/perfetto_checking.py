"""Rules that every Perfetto trace must obey."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

Events = list[dict[str, Any]]


def checked_events(trace: str) -> Events:
    """Return the events of a trace, as JSON, after checking what every trace must obey."""
    events: Events = json.loads(trace)["traceEvents"]
    named, last, flows = set(), defaultdict(int), defaultdict(list)
    for event in events:
        track = (event["pid"], event.get("tid"))
        if event["ph"] == "M":
            if event["name"] == "thread_name":
                assert track not in named
                named.add(track)
            continue
        ts = round(event["ts"] * 1000)
        if event["ph"] == "X":
            assert track in named
            assert ts >= last[track], "slices of a track overlap or are out of order"
            assert event["dur"] >= 0
            last[track] = ts + round(event["dur"] * 1000)
            around = (track, ts, last[track])
        elif event["ph"] in "sf":
            # Right behind the slice it binds to, and within it.
            assert around[0] == track
            assert around[1] <= ts <= around[2]
            flows[event["id"]].append((event["ph"], ts))
        else:
            assert event["ph"] == "C"
            assert event["args"]["bytes"] >= 0
    for ends in flows.values():
        (_, leaves), (_, reaches) = sorted(ends, reverse=True)
        assert sorted(kind for kind, _ in ends) == ["f", "s"]
        assert leaves <= reaches
    return events
