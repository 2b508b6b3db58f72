"""Errors that users cause, and the representation of values in messages."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final


class CollplanError(Exception):
    """An error that the user can correct; its message has subject, problem, and remedy."""


class SpecError(CollplanError):
    """A spec that does not describe a plan; the message has one line per mistake."""


class FieldError(SpecError, ValueError):
    """Wrong fields of a part of a spec that Python code makes, as ``Machine(nodes=0)``."""


@contextmanager
def naming(before: str) -> Iterator[None]:
    """Put text, as the name of a file, before every line of an error that the block raises."""
    try:
        yield
    except CollplanError as error:
        text = "\n".join(f"{before}{line}" for line in str(error).splitlines())
        raise type(error)(text) from None


MOST_SHOWN: Final = 80
"""Most characters of a value that a message shows."""
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = MOST_SHOWN
_SHORT.maxlong = 40
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 6
_LONGEST_LINE: Final = 1000


def show_value(value: Any, *, plain: bool = False) -> str:
    """Return a value as messages show it: its `repr`, with at most `MOST_SHOWN` characters.

    Parameters
    ----------
    value : object
        Anything a document can hold.
    plain : bool
        Whether text is shown without quotes.

    Examples
    --------
    >>> show_value("many"), show_value(range(3)), show_value("a" * 100, plain=True)[-3:]
    ("'many'", 'range(0, 3)', 'aaa')
    """
    try:
        text = _SHORT.repr(value)
    except ValueError:  # Python writes no integers of more than 4,300 digits
        return "a number of thousands of digits"
    is_text = isinstance(value, str)
    return cut(printable(text[1:-1] if plain and is_text else text), MOST_SHOWN)


def cut(text: str, most: int) -> str:
    """Return text of at most `most` characters: both ends, if it is longer.

    Examples
    --------
    >>> cut("abcdefghij", 7), cut("abc", 7)
    ('ab...ij', 'abc')
    """
    kept = (most - 3) // 2
    return text if len(text) <= most else f"{text[:kept]}...{text[-kept:]}"


def first_repeated(values: Sequence[Hashable]) -> int:
    """Return the place of the first value that was there before; -1 if there is none.

    Examples
    --------
    >>> first_repeated("abcbac"), first_repeated([1, 2])
    (3, -1)
    """
    seen: set[Hashable] = set()
    for i, value in enumerate(values):
        if value in seen:
            return i
        seen.add(value)
    return -1


_MEANINGS: Final = """
ranks nranks n_procs nprocs processes size = n_ranks machine.n_ranks
ranks n_ranks nranks np n_procs nprocs procs processes = ranks_per_node machine.ranks_per_node
ppn procs_per_node processes_per_node tasks_per_node = ranks_per_node machine.ranks_per_node
n_nodes nnodes hosts = nodes machine.nodes
cores_per_node cpus cpus_per_node = cores machine.cores
sockets numa domains = numa_domains machine.numa_domains
nics n_lanes adapters rails hcas = lanes machine.lanes
latency latency_ns alpha L L_ns = L_ns
bandwidth bw beta G G_ns G_ns_per_byte = G_ns_per_byte
overhead o o_ns = o_ns
gap g g_ns = g_ns
O O_ns_per_byte = O_ns_per_byte
eager eager_limit eager_threshold S eager_limit_bytes = eager_limit_bytes
root_rank source src root = root collective.root
dtype type data_type datatype = datatype collective.datatype
n n_elements elements length count = count collective.count
neighbor_alltoallw = neighbor_alltoallv
edges neighbors destinations = graph collective.graph
dims extents shape = grid
periods wraps torus = periodic
sendcounts recvcounts send_counts recv_counts counts = counts collective.counts
operation reduction reduce_op op = op collective.op
inplace in_place = in_place collective.in_place
name collective coll operation = kind
kind = collective.kind
algorithm algo alg method = algorithms
optimizations rewrites transformations = passes
shared_memory shm = transport
preset cluster platform = machine preset
machine = network
network = machine.network
broadcast = bcast
add plus = sum
mul multiply product times = prod
maximum = max
minimum = min
and logical_and = land
or logical_or = lor
xor logical_xor = lxor
bitwise_and = band
bitwise_or = bor
bitwise_xor = bxor
argmin = minloc
argmax = maxloc
shm shared_memory = shared
p2p point_to_point message = messages
none = flat
reduce_scatter = reduce_scatter_block
all_to_all = alltoall
Spec CollectiveSpec = PlanSpec
run execute = bind
prove check validate = verify
price cost estimate timeline = simulate cost
plot show picture visualize = draw
save dump write = save_plan
plan build = compile
read open load = load_spec
spec parse = parse_spec
filename file output out = path
view = by
communicator = comm
timeout = timeout_s
"""
"""Other words for names, each with names that it may mean; fields of fields have dots."""
_LINK_FIELDS: Final = ("L_ns", "G_ns_per_byte", "o_ns", "g_ns", "O_ns_per_byte")


@cache
def _synonyms() -> dict[str, list[str]]:
    """Return the names that each word of the table may mean, the likeliest first."""
    found: dict[str, list[str]] = {}
    for line in _MEANINGS.strip().splitlines():
        words, _, meant = line.partition(" = ")
        for word in words.split():
            found.setdefault(word, []).extend(meant.split())
            if meant in _LINK_FIELDS:
                places = "network.", "network.network.", "machine.network.network."
                found[word] += [f"{place}{meant}" for place in places]
            if meant == "eager_limit_bytes":
                found[word] += [f"network.{meant}", f"machine.network.{meant}"]
    return found


def closest(word: object, valid: Iterable[str]) -> str | None:
    """Return the valid name that a word means: by a synonym, or by its letters; None if unclear.

    Valid names with dots, as ``network.L_ns``, are fields of fields; only synonyms mean these.

    Examples
    --------
    >>> closest("ppn", ["nodes", "ranks_per_node"]), closest("latency", ["node", "network.L_ns"])
    ('ranks_per_node', 'network.L_ns')
    >>> closest("MPI_Bcast", ["bcast", "gather"])
    'bcast'
    """
    if not isinstance(word, str):
        return None
    names = list(valid)
    plain = word.lower().removeprefix("mpi_")
    candidates: list[str] = [*_synonyms().get(word, ()), plain, *_synonyms().get(plain, ())]
    for meant in candidates:
        if meant in names:
            return meant
    close = difflib.get_close_matches(word, [name for name in names if "." not in name], n=1)
    return close[0] if close else None


def suggest(word: object, valid: Iterable[str], within: Iterable[str] = ()) -> str:
    """Return a hint that names what a word means among valid ones; empty text if that is unclear.

    A hint that names another place begins with the fields `within` which the valid ones are.

    Examples
    --------
    >>> suggest("bcats", ["bcast", "gather"]), suggest("x", ["bcast"])
    ("did you mean 'bcast'? ", '')
    >>> suggest("latency", ["node", "network.L_ns"])
    "did you mean 'network: {L_ns: ...}'? "
    >>> suggest("latency", ["node", "network.L_ns"], ["machine"])
    "did you mean 'machine: {network: {L_ns: ...}}'? "
    """
    meant = closest(word, valid)
    if meant is None:
        return ""
    *outer, inner = meant.split(".")
    written = inner if not outer else f"{inner}: ..."
    for name in reversed([*within, *outer] if outer else []):
        written = f"{name}: {{{written}}}"
    return f"did you mean {written!r}? "


def public_names(kind: type) -> list[str]:
    """Return the attributes of a class that do not begin with an underscore.

    Fields of models and of dataclasses are among them, although the class itself has none.
    """
    places = ("model_fields", "__dataclass_fields__")
    names = {*dir(kind), *(name for place in places for name in getattr(kind, place, ()))}
    return sorted(name for name in names if not name.startswith(("_", "model_")))


def no_attribute(
    owner: object, name: str, inner: Iterable[str] = (), functions: Iterable[str] = ()
) -> AttributeError:
    """Return the error for an unknown attribute, with a hint where there is what it means.

    Parameters
    ----------
    owner : object
    name : str
        The unknown attribute.
    inner : iterable of str
        Attributes of attributes, as ``machine.nodes``.
    functions : iterable of str
        Functions of `collplan` that take the object.

    Examples
    --------
    >>> no_attribute(SpecError(), "draw", functions=["draw"])
    AttributeError("'SpecError' object has no attribute 'draw'; use collplan.draw(...)")
    """
    kind, functions, inner = type(owner), list(functions), list(inner)
    text = f"{kind.__name__!r} object has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(text)
    own = public_names(kind)
    meant = next((one for one in inner if one.endswith(f".{name}")), None)
    meant = meant or closest(name, [*functions, *own, *inner])
    if meant in functions:
        return AttributeError(f"{text}; use collplan.{meant}(...)")
    return AttributeError(text if meant is None else f"{text}; did you mean {meant!r}?")


def printable(text: str) -> str:
    """Return text as one line in which unprintable characters are escaped, as ``\\x1b``.

    Examples
    --------
    >>> printable("a\\tb\\x1b[31m")
    'a b\\\\x1b[31m'
    """
    line = " ".join(text.split())
    line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)
    return cut(line, _LONGEST_LINE)  # the remedy is at the end
