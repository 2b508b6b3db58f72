"""A multi-lane cluster on one machine: nodes are network namespaces, lanes are shaped links.

Outside, in the process that asks for a cluster: `cluster` describes it,
`machine` turns it into the machine of a spec, `launching` knows the launchers of
the MPIs, `running` finds the tools and runs a command on the cluster. Inside, in
processes of its own: `sandbox` is the first, `nodes` builds nodes and switches.
A rank reads its lanes with `counters`.

Importing this package imports nothing: what runs inside must start fast.
"""
