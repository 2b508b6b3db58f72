"""A multi-lane cluster on one machine: nodes are network namespaces, lanes are shaped links.

Some modules run outside, in the process that requests a cluster: `cluster` describes it,
`machine` converts it to the machine of a spec, `launching` knows the launchers of MPI
libraries, and `running` finds the tools and runs a command on the cluster. Others run inside,
in separate processes: `sandbox` is the first of them, and `nodes` builds nodes and switches.
A rank reads the counters of its lanes with `counters`.

This package imports nothing by itself, because the processes inside must start fast.
"""
