"""Lowering: from a blueprint to messages and local steps, and from those to tasks.

The modules, in the order in which a plan passes them:

1. `select` chooses the algorithm of each component (`stated`) by closed forms for its `traffic`.
   `mpich_rules` has the choices of MPICH.
2. `program` makes the `tables` of messages and local steps of a blueprint, which has components,
   slices (`sliced`) or an exchange through shared memory (`exchange`, `uneven_exchange`).
3. `lower` runs the algorithms of components, once for every one of the `batches` of groups that are
   alike. `collect` lists the steps, `collect_relative` those of a few positions, and
   `recent_steps` remembers both.
4. `address` finds the memory of the chunks that steps read and write.
5. `build` makes tasks of the tables, with scratch for calls that need it (`staged_calls`) and for
   messages that cannot be received in place.

`symmetry` and `component_symmetry` say whether the programs of all nodes are alike, so that one
node's program stands for all.
"""
