"""Schedules that are packed into the links of a fabric, and exact bounds for them.

The modules, in the order in which a schedule passes them:

1. `hops` lists the links and the pairs of ranks over which chunks may move.
2. `dissemination` and `delivery` simulate time, and give each link that becomes free the chunk that
   helps most: `dissemination` for chunks that all ranks need, and `delivery` for chunks with one
   destination. Both use the `heap` of events.
3. `schedule` makes several attempts, chooses the best one, and turns it around for reductions.
"""
