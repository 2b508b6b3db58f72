"""The messages of MPI libraries' own algorithms, written from the libraries' sources.

Every function takes the number of ranks, the root and the length of a vector or of a block,
and yields (source, destination, length), rank by rank as the sources compute them. Sources
read: MPICH 5 (src/mpi/coll), Open MPI 6 (ompi/mca/coll/base) and UCC 1.8 (tl/ucp), in 2026.
Nothing here uses the planner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

Messages = Iterator[tuple[int, int, int]]
Algorithm = Callable[[int, int, int], Messages]


def tree(children: Callable[[int, int], Iterator[int]]) -> Algorithm:
    """Return a broadcast that sends the vector to the children of every rank relative to root."""

    def bcast(p: int, root: int, n: int) -> Messages:
        for me in range(p):
            for child in children(me, p):
                yield (me + root) % p, (child + root) % p, n

    return bcast


def upward(bcast: Algorithm) -> Algorithm:
    """Return the reduction along the edges of a broadcast."""

    def reduce(p: int, root: int, n: int) -> Messages:
        yield from ((dest, source, length) for source, dest, length in bcast(p, root, n))

    return reduce


def kary_children(k: int | None, me: int, p: int) -> Iterator[int]:
    """MPICH's MPII_Treeutil_tree_kary_init; no k is a star."""
    k = k or max(1, p - 1)
    yield from (child for child in range(me * k + 1, me * k + k + 1) if child < p)


def knomial_1_children(k: int, me: int, p: int) -> Iterator[int]:
    """MPICH's MPII_Treeutil_tree_knomial_1_init: subtrees are runs of ranks after the holder."""
    n_steps, rest = 0, p - 1
    while rest:
        rest //= k
        n_steps += 1
    step, current, running = 0, 0, 1
    while me != current:
        span = k ** (n_steps - step - 1)
        for _ in range(1, k):
            if running <= me < running + span:
                current, running = running, running + 1
                break
            running += span
        step += 1
    child = me + 1
    for later in range(step, n_steps):
        for _ in range(1, k):
            if child < p:
                yield child
            child += k ** (n_steps - later - 1)


def knomial_2_children(k: int, me: int, p: int) -> Iterator[int]:
    """MPICH's MPII_Treeutil_tree_knomial_2_init: children fill the zero digits on the right."""
    depth, power = 1, k - 1
    while power - 1 < p - 1:
        power *= k
        depth += 1
    n_zeros = 0
    while n_zeros < depth and me // k**n_zeros % k == 0:
        n_zeros += 1
    for digit in reversed(range(n_zeros)):
        yield from (me + i * k**digit for i in range(k - 1, 0, -1) if me + i * k**digit < p)


def kmtree_children(k: int, me: int, p: int) -> Iterator[int]:
    """Open MPI's ompi_coll_base_topo_build_kmtree."""
    mask = 1
    while mask < p and me % (k * mask) == 0:
        mask *= k
    mask //= k
    while mask:
        yield from (me + mask * i for i in range(1, k) if me + mask * i < p)
        mask //= k


def chain_children(fanout: int, me: int, p: int) -> Iterator[int]:
    """Open MPI's ompi_coll_base_topo_build_chain: the first chains are longer by one."""
    fanout = min(fanout, p - 1)
    longest, mark = -(-(p - 1) // fanout), (p - 1) % fanout or fanout
    head, heads = 1, {}
    for column in range(fanout):
        length = longest if column < mark else longest - 1
        heads[head] = length
        head += length
    if me == 0:
        yield from heads
        return
    first = max(begin for begin in heads if begin <= me)
    if me + 1 < first + heads[first]:
        yield me + 1


def bmtree_children(me: int, p: int) -> Iterator[int]:
    """Open MPI's ompi_coll_base_topo_build_bmtree: children lie above the leading bit."""
    mask = 1 << me.bit_length()
    while mask < p and me ^ mask < p:
        yield me ^ mask
        mask <<= 1


def in_order_children(me: int, p: int) -> Iterator[int]:
    """Open MPI's ompi_coll_base_topo_build_in_order_bmtree."""
    mask = 1
    while mask < p and me ^ mask > me:
        if me ^ mask < p:
            yield me ^ mask
        mask <<= 1


def bintree_children(me: int, p: int) -> Iterator[int]:
    """Open MPI's ompi_coll_base_topo_build_tree with two children: levels are dealt in turn."""
    delta = 1 << ((me + 1).bit_length() - 1)
    yield from (child for child in (me + delta, me + 2 * delta) if child < p)


def in_order_binary(p: int, root: int, n: int) -> Messages:
    """Open MPI's reduce up ompi_coll_base_topo_build_in_order_bintree, then to the root."""
    waiting = [(0, p)]
    while waiting:
        first, size = waiting.pop()
        parent, low = first + size - 1, size // 2
        if size > 1:
            yield parent - 1, parent, n
        if size > 2:
            yield first + low - 1, parent, n
            waiting += [(first, low), (first + low, size - 1 - low)]
    if root != p - 1:
        yield p - 1, root, n


def ucc_tree_children(k: int, me: int, p: int) -> Iterator[int]:
    """UCC's ucc_tl_ucp_bcast_knomial_progress."""
    k, dist = min(k, p), 1
    while dist * k < p:
        dist *= k
    while dist:
        if me % dist == 0 and me // dist % k == 0:
            yield from (me + i * dist for i in range(k - 1, 0, -1) if me + i * dist < p)
        dist //= k


def binomial_gather(p: int, root: int, n: int) -> Messages:
    """MPICH's and Open MPI's gather: each sends its subtree's blocks once."""
    for me in range(1, p):
        low = me & -me
        yield (me + root) % p, (me - low + root) % p, n * min(low, p - me)


def star_from(p: int, root: int, n: int) -> Messages:
    yield from ((root, rank, n) for rank in range(p) if rank != root)


def everyone_to_everyone(p: int, root: int, n: int) -> Messages:
    yield from ((a, b, n) for a in range(p) for b in range(p) if a != b)


def shifted(sign: int, p: int, root: int, n: int) -> Messages:
    """A message of doubling distance: barriers by dissemination."""
    distance = 1
    while distance < p:
        yield from ((me, (me + sign * distance) % p, 0) for me in range(p))
        distance *= 2


def bruck_allgather(p: int, root: int, n: int) -> Messages:
    distance = 1
    while distance < p:
        count = min(distance, p - distance)
        yield from ((me, (me - distance) % p, n * count) for me in range(p))
        distance *= 2


def sparbit(p: int, root: int, n: int) -> Messages:
    """Open MPI's and UCC's; they send the blocks of a step one by one, each as a message."""
    zeros = (p & -p).bit_length() - 1
    ignored = (~(p >> zeros) | 1) << zeros
    distance, held = 1 << ((p - 1).bit_length() - 1), 1
    while distance:
        left_out = distance & ignored == distance
        yield from ((me, (me + distance) % p, n * (held - left_out)) for me in range(p))
        held = 2 * held - left_out
        distance //= 2


def k_brucks_allgather(k: int, p: int, root: int, n: int) -> Messages:
    """MPICH's MPIR_Allgather_intra_k_brucks: in the last phase as many blocks as are left."""
    n_phases = 1
    while k**n_phases < p:
        n_phases += 1
    for phase in range(n_phases):
        delta = k**phase
        for j in range(1, k):
            if delta * j >= p:
                break
            count = delta
            if phase == n_phases - 1 and p != k**n_phases:
                count = p - delta * j if j == k - 1 else min(delta, p - delta * j)
            yield from ((me, (me - delta * j) % p, n * count) for me in range(p))


def k_brucks_alltoall(k: int, p: int, root: int, n: int) -> Messages:
    """MPICH's MPIR_Alltoall_intra_k_brucks: all offsets with a digit, one message for each."""
    delta = 1
    while delta < p:
        for j in range(1, k):
            count = sum(1 for offset in range(p) if offset // delta % k == j)
            if delta * j < p:
                yield from ((me, (me + delta * j) % p, n * count) for me in range(p))
        delta *= k


def k_dissemination(k: int, p: int, root: int, n: int) -> Messages:
    """MPICH's MPIR_Barrier_intra_k_dissemination, which signals beyond all ranks, too."""
    k, shift = min(k, p), 1
    while shift < p:
        yield from ((me, (me + j * shift) % p, 0) for me in range(p) for j in range(1, k))
        shift *= k


def recursive_multiplying(k: int, p: int, root: int, n: int) -> Messages:
    """MPICH's MPIR_Allreduce_intra_recursive_multiplying."""
    q = 1
    while q * k <= p:
        q *= k
    for me in range(q, p):
        yield from ((me, me % q, n), (me % q, me, n))
    distance = 1
    while distance < q:
        for me in range(q):
            first = me // (distance * k) * distance * k + me % distance
            group = range(first, first + distance * k, distance)
            yield from ((me, dest, n) for dest in group if dest != me)
        distance *= k


class Recexch:
    """MPICH's MPII_Recexchalgo: ranks beyond a power of k fold, the others exchange by digits."""

    def __init__(self, k: int, p: int) -> None:
        self.k = k = k if p >= k else max(2, p)
        self.power = max(k**i for i in range(32) if k**i <= p)
        self.p, self.surplus = p, p - self.power
        self.first = self.surplus * k // (k - 1)

    def real(self, virtual: int) -> int:
        """Return the rank of one that exchanges."""
        k, surplus = self.k, self.surplus
        return virtual * k + k - 1 if virtual < surplus // (k - 1) else virtual + surplus

    def folded(self) -> Iterator[tuple[int, int]]:
        """Yield the ranks that fold, each with the one it gives its data to."""
        for me in range(self.first):
            if me % self.k != self.k - 1:
                yield me, min(me + self.k - 1 - me % self.k, self.first)

    def phases(self) -> list[list[tuple[int, int]]]:
        """Return the virtual ranks that exchange in every phase, the nearest first."""
        found, distance = [], 1
        while distance < self.power:
            pairs = [
                (me, me + (digit - me // distance % self.k) * distance)
                for me in range(self.power)
                for digit in range(self.k)
                if digit != me // distance % self.k
            ]
            found.append(pairs)
            distance *= self.k
        return found

    def n_blocks(self, virtual: int, phase: int) -> int:
        """Return how many blocks a rank stands for in a phase."""
        width = self.k**phase
        least = virtual // width * width - 1
        return self.real(least + width) - (self.real(least) if least >= 0 else least)


def recexch_allreduce(k: int, p: int, root: int, n: int) -> Messages:
    """MPICH's MPIR_TSP_Iallreduce_sched_intra_recexch."""
    group = Recexch(k, p)
    for me, other in group.folded():
        yield from ((me, other, n), (other, me, n))
    for pairs in group.phases():
        yield from ((group.real(one), group.real(other), n) for one, other in pairs)


def recexch_allgather(k: int, p: int, root: int, n: int, *, is_far_first: bool = False) -> Messages:
    """MPICH's MPIR_TSP_Iallgather_sched_intra_recexch, by distance doubling or halving."""
    group = Recexch(k, p)
    for me, other in group.folded():
        yield from ((me, other, n), (other, me, p * n))
    phases = group.phases()
    for number, pairs in enumerate(reversed(phases) if is_far_first else phases):
        for one, other in pairs:
            digits = [one // group.k**i % group.k for i in range(len(phases))]
            mirrored = sum(d * group.k ** (len(phases) - 1 - i) for i, d in enumerate(digits))
            n_blocks = group.n_blocks(mirrored if is_far_first else one, number)
            yield group.real(one), group.real(other), n_blocks * n


def recexch_reduce_scatter_block(k: int, p: int, root: int, n: int) -> Messages:
    """MPICH's MPIR_TSP_Ireduce_scatter_block_sched_intra_recexch."""
    group = Recexch(k, p)
    for me, other in group.folded():
        yield from ((me, other, p * n), (other, me, n))
    for phase, pairs in enumerate(group.phases()):
        for one, other in pairs:
            yield group.real(one), group.real(other), group.n_blocks(other, phase) * n


def double_ring(p: int, root: int, n: int) -> Messages:
    """Open MPI's ompi_coll_base_barrier_intra_doublering."""
    yield from ((me, (me + 1) % p, 0) for me in range(p) for _ in range(2))


def up_and_down(bcast: Algorithm) -> Algorithm:
    """Return the barrier that signals up a tree, then down it."""

    def barrier(p: int, root: int, n: int) -> Messages:
        yield from upward(bcast)(p, root, 0)
        yield from bcast(p, root, 0)

    return barrier


def bruck_alltoall(p: int, root: int, n: int) -> Messages:
    bit = 1
    while bit < p:
        count = sum(1 for block in range(1, p) if block & bit)
        yield from ((me, (me + bit) % p, n * count) for me in range(p))
        bit *= 2


def ring(turns: int, p: int, root: int, n: int) -> Messages:
    """Around the ring so often, a p-th of a vector (turns 2) or a block (1) at a time."""
    length = n // p if turns == 2 else n
    for me in range(p):
        yield from ((me, (me + 1) % p, length) for _ in range(turns * (p - 1)))


def two_rings(p: int, root: int, n: int) -> Messages:
    """UCC's reduce_scatter ring unless told otherwise: half of each block either way."""
    for me in range(p):
        for _ in range(p - 1):
            yield me, (me + 1) % p, n - n // 2
            yield me, (me - 1) % p, n // 2


def neighbor_exchange(p: int, root: int, n: int) -> Messages:
    for me in range(p):
        near, far = (me + 1, me - 1) if me % 2 == 0 else (me - 1, me + 1)
        yield me, near % p, n
        yield from ((me, (far if i % 2 else near) % p, 2 * n) for i in range(1, p // 2))


def doubling_blocks(p: int, root: int, n: int) -> Messages:
    mask = 1
    while mask < p:
        yield from ((me, me ^ mask, n * mask) for me in range(p))
        mask *= 2


def halving_blocks(p: int, root: int, n: int) -> Messages:
    """Reduce_scatter_block by recursive halving, on powers of two: farthest partners first."""
    mask = p // 2
    while mask:
        yield from ((me, me ^ mask, n * mask) for me in range(p))
        mask //= 2


def scan_doubling(p: int, root: int, n: int) -> Messages:
    mask = 1
    while mask < p:
        yield from ((me, me ^ mask, n) for me in range(p) if me ^ mask < p)
        mask *= 2


def chain_up(p: int, root: int, n: int) -> Messages:
    yield from ((me, me + 1, n) for me in range(p - 1))


class Folded:
    """A power of two of the ranks; the first pairs leave one rank out, even or odd."""

    def __init__(self, p: int, stays: int) -> None:
        self.q = 1 << (p.bit_length() - 1)
        self.rem, self.stays = p - self.q, stays

    def real(self, virtual: int) -> int:
        return 2 * virtual + self.stays if virtual < self.rem else virtual + self.rem

    def fold(self, n: int) -> Messages:
        for i in range(self.rem):
            yield 2 * i + 1 - self.stays, 2 * i + self.stays, n

    def unfold(self, n: int) -> Messages:
        yield from ((b, a, length) for a, b, length in self.fold(n))

    def exchange(self, mask: int, n: int) -> Messages:
        yield from ((self.real(v), self.real(v ^ mask), n) for v in range(self.q))

    def reduce_scatter(self, n: int) -> Messages:
        mask = 1
        while mask < self.q:
            yield from self.exchange(mask, n // (2 * mask))
            mask *= 2


def allreduce_doubling(stays: int, p: int, root: int, n: int) -> Messages:
    """Recursive doubling of whole vectors; n = 0 is a barrier."""
    some = Folded(p, stays)
    yield from some.fold(n)
    mask = 1
    while mask < some.q:
        yield from some.exchange(mask, n)
        mask *= 2
    yield from some.unfold(n)


def ompi_barrier_doubling(p: int, root: int, n: int) -> Messages:
    """Ranks beyond the power of two signal the ranks lower by that power, far away from them."""
    q = 1 << (p.bit_length() - 1)
    for me in range(q, p):
        yield from ((me, me - q, 0), (me - q, me, 0))
    mask = 1
    while mask < q:
        yield from ((me, me ^ mask, 0) for me in range(q))
        mask *= 2


def reduce_scatter_allgather(stays: int, p: int, root: int, n: int) -> Messages:
    some = Folded(p, stays)
    yield from some.fold(n)
    yield from some.reduce_scatter(n)
    mask = some.q // 2
    while mask:
        yield from some.exchange(mask, n // (2 * mask))
        mask //= 2
    yield from some.unfold(n)


def ompi_fold(p: int, n: int) -> Messages:
    """Pairs exchange halves, reduce, and the odd rank's half goes to the even one."""
    for i in range(Folded(p, 0).rem):
        yield from (
            (2 * i + 1, 2 * i, n // 2),
            (2 * i, 2 * i + 1, n // 2),
            (2 * i + 1, 2 * i, n // 2),
        )


def ompi_rabenseifner(p: int, root: int, n: int) -> Messages:
    some = Folded(p, 0)
    yield from ompi_fold(p, n)
    whole = reduce_scatter_allgather(0, p, root, n)
    folds = {(a, b) for a, b, _ in some.fold(n)}
    yield from (each for each in whole if each[:2] not in folds)


def scattered_gather(
    folding: Callable[[int, int], Messages], p: int, root: int, n: int
) -> Messages:
    """MPICH's and Open MPI's reduce by reduce-scatter and gather, even ranks staying."""
    some = Folded(p, 0)
    yield from folding(p, n)
    yield from some.reduce_scatter(n)
    excluded = root < 2 * some.rem and root % 2 == 1
    virtual_root = 0 if excluded else root // 2 if root < 2 * some.rem else root - some.rem

    def real(virtual: int) -> int:
        return root if excluded and virtual == 0 else some.real(virtual)

    if excluded and some.q > 1:
        yield some.real(0), root, n // some.q
    for v in range(some.q):
        if v == virtual_root:
            continue
        bit = 1 << ((v ^ virtual_root).bit_length() - 1)  # farthest partners first
        yield real(v), real(v ^ bit), n // (2 * bit)


def scatter_ring(p: int, root: int, n: int) -> Messages:
    """A binomial scatter, then a whole ring: the root, too, is sent what it has."""
    for child, parent, length in binomial_gather(p, root, n // p):
        yield parent, child, length
    yield from ring(1, p, root, n // p)


def ucc_allreduce_knomial(k: int, p: int, root: int, n: int) -> Messages:
    """UCC's recursive k-ing of whole vectors, with proxies for the ranks left over."""
    k = min(k, p)
    full = k
    while full * k <= p:
        full *= k
    extra = p - p // full * full
    yield from ((2 * i + 1, 2 * i, n) for i in range(extra))
    span = 1
    while span < p - extra:
        for me in range(p - extra):
            base = me // (span * k) * span * k
            for i in range(1, k):
                peer = base + (me + i * span) % (span * k)
                if peer < p - extra:
                    yield _ucc_rank(me, extra), _ucc_rank(peer, extra), n
        span *= k
    yield from ((2 * i, 2 * i + 1, n) for i in range(extra))


def _ucc_rank(loop_rank: int, extra: int) -> int:
    return 2 * loop_rank if loop_rank < extra else loop_rank + extra


def scatter_doubling(p: int, root: int, n: int) -> Messages:
    """The bcast of all libraries by scatter and recursive doubling, for powers of two."""
    for child, parent, length in binomial_gather(p, root, n // p):
        yield parent, child, length
    for source, dest, length in doubling_blocks(p, root, n // p):
        yield (source + root) % p, (dest + root) % p, length


def split_bintree(p: int, root: int, n: int) -> Messages:
    """Open MPI's ompi_coll_base_bcast_intra_split_bintree, without segments."""
    halves = n - n // 2, n // 2
    for me in range(p):
        for number, child in enumerate(bintree_children(me, p)):
            half = halves[number if me == 0 else (me + 1) % 2]
            yield (me + root) % p, (child + root) % p, half
    for me in range(1, p):
        pair = me + 1 if me % 2 else me - 1
        if pair < p:
            yield (me + root) % p, (pair + root) % p, halves[(me + 1) % 2]
        else:
            yield root, (me + root) % p, halves[1]


KARY: Final = {k: tree(partial(kary_children, k)) for k in (1, 2, None)}
BINOMIAL: Final = tree(in_order_children)
MPICH: Final[dict[tuple[str, str], Algorithm]] = {
    ("allgather", "brucks"): bruck_allgather,
    ("allgather", "recursive_doubling"): doubling_blocks,
    ("allgather", "ring"): partial(ring, 1),
    ("allreduce", "recursive_doubling"): partial(allreduce_doubling, 1),
    ("allreduce", "reduce_scatter_allgather"): partial(reduce_scatter_allgather, 1),
    ("allreduce", "ring"): partial(ring, 2),
    ("alltoall", "brucks"): bruck_alltoall,
    ("alltoall", "scattered"): everyone_to_everyone,
    ("alltoall", "pairwise"): everyone_to_everyone,
    ("barrier", "recexch"): partial(allreduce_doubling, 1),
    ("bcast", "binomial"): BINOMIAL,
    ("bcast", "scatter_recursive_doubling_allgather"): scatter_doubling,
    ("bcast", "scatter_ring_allgather"): scatter_ring,
    ("exscan", "recursive_doubling"): scan_doubling,
    ("gather", "binomial"): binomial_gather,
    ("reduce", "binomial"): upward(BINOMIAL),
    ("reduce", "reduce_scatter_gather"): partial(
        scattered_gather, lambda p, n: Folded(p, 0).fold(n)
    ),
    ("reduce_scatter_block", "pairwise"): everyone_to_everyone,
    ("reduce_scatter_block", "recursive_halving"): halving_blocks,
    ("scan", "recursive_doubling"): scan_doubling,
    ("scatter", "binomial"): upward(binomial_gather),
}
MPICH_BY_RADIX: Final[dict[tuple[str, str], Callable[[int, int, int, int], Messages]]] = {
    ("allgather", "k_brucks"): k_brucks_allgather,
    ("allreduce", "recursive_multiplying"): recursive_multiplying,
    ("alltoall", "k_brucks"): k_brucks_alltoall,
    ("barrier", "k_dissemination"): k_dissemination,
}
OPEN_MPI: Final[dict[tuple[str, str], Algorithm]] = {
    ("allgather", "bruck"): bruck_allgather,
    ("allgather", "recursive_doubling"): doubling_blocks,
    ("allgather", "ring"): partial(ring, 1),
    ("allgather", "neighbor"): neighbor_exchange,
    ("allgather", "direct"): everyone_to_everyone,
    ("allgather", "sparbit"): sparbit,
    ("allreduce", "recursive_doubling"): partial(allreduce_doubling, 1),
    ("allreduce", "ring"): partial(ring, 2),
    ("allreduce", "rabenseifner"): ompi_rabenseifner,
    ("alltoall", "linear"): everyone_to_everyone,
    ("alltoall", "pairwise"): everyone_to_everyone,
    ("alltoall", "modified_bruck"): bruck_alltoall,
    ("barrier", "bruck"): partial(shifted, -1),
    ("barrier", "double_ring"): double_ring,
    ("barrier", "linear"): up_and_down(star_from),
    ("barrier", "recursive_doubling"): ompi_barrier_doubling,
    ("barrier", "tree"): up_and_down(BINOMIAL),
    ("bcast", "basic_linear"): star_from,
    ("bcast", "pipeline"): KARY[1],
    ("bcast", "binary_tree"): tree(bintree_children),
    ("bcast", "binomial"): tree(bmtree_children),
    ("bcast", "scatter_allgather"): scatter_doubling,
    ("bcast", "scatter_allgather_ring"): scatter_ring,
    ("bcast", "split_binary_tree"): split_bintree,
    ("exscan", "linear"): chain_up,
    ("exscan", "recursive_doubling"): scan_doubling,
    ("gather", "basic_linear"): upward(star_from),
    ("gather", "binomial"): binomial_gather,
    ("reduce", "binary"): upward(tree(bintree_children)),
    ("reduce", "in-order_binary"): in_order_binary,
    ("reduce", "linear"): upward(star_from),
    ("reduce", "pipeline"): upward(KARY[1]),
    ("reduce", "binomial"): upward(BINOMIAL),
    ("reduce", "rabenseifner"): partial(scattered_gather, ompi_fold),
    ("reduce_scatter_block", "recursive_halving"): halving_blocks,
    ("scan", "linear"): chain_up,
    ("scan", "recursive_doubling"): scan_doubling,
    ("scatter", "binomial"): upward(binomial_gather),
    ("scatter", "linear_nb"): star_from,
}


def ucc(settings: Mapping[str, str]) -> dict[tuple[str, str], Algorithm]:
    """Return UCC's algorithms under such variables; else the defaults of its sources hold."""

    def radix(name: str) -> int:
        return int(settings.get(f"UCC_TL_UCP_{name}_KN_RADIX", 4))

    def if_halving(name: str, algorithm: Algorithm) -> Algorithm:
        return algorithm if radix(name) == 2 else ucc_unlike_any

    one_ring = settings.get("UCC_TL_UCP_REDUCE_SCATTER_RING_BIDIRECTIONAL", "y") == "n"
    return {
        ("allgather", "knomial"): if_halving("ALLGATHER", doubling_blocks),
        ("allgather", "ring"): partial(ring, 1),
        ("allgather", "neighbor"): neighbor_exchange,
        ("allgather", "bruck"): bruck_allgather,
        ("allgather", "sparbit"): sparbit,
        ("allreduce", "knomial"): partial(ucc_allreduce_knomial, radix("ALLREDUCE")),
        ("allreduce", "sra_knomial"): if_halving(
            "ALLREDUCE_SRA", partial(reduce_scatter_allgather, 0)
        ),
        ("allreduce", "ring"): partial(ring, 2) if one_ring else ucc_unlike_any,
        ("alltoall", "pairwise"): everyone_to_everyone,
        ("alltoall", "bruck"): bruck_alltoall,
        ("bcast", "knomial"): tree(partial(ucc_tree_children, radix("BCAST"))),
        ("bcast", "sag_knomial"): scatter_doubling,
        ("reduce", "knomial"): upward(tree(partial(ucc_tree_children, radix("REDUCE")))),
        ("reduce_scatter_block", "ring"): partial(ring, 1) if one_ring else two_rings,
        ("reduce_scatter_block", "knomial"): if_halving("REDUCE_SCATTER", halving_blocks),
    }


def ucc_unlike_any(p: int, root: int, n: int) -> Messages:
    """UCC's exchanges of radix 4 and two rings at once, which no algorithm of ours has."""
    yield from ((rank, rank, n) for rank in range(p))
