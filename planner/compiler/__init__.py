"""From a spec to a plan: of all ranks, of one, of one node, folded; and its proof."""
