"""A multi-lane cluster on one machine: nodes are network namespaces, lanes are shaped links.

Outside, in the process that asks for a cluster: `cluster` describes it,
`machine` says it as a spec, `host` looks whether this machine can do it,
`launching` knows the MPIs' launchers, `running` runs a command on it. Inside,
in processes of its own: `sandbox` is their first, `nodes` and `switches` build.
A rank reads its lanes with `counters`.

Importing this package imports nothing: what runs inside must start fast.
"""
