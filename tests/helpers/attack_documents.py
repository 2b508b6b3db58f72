"""Random documents: good ones with keys, values, structure, text and bytes changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class Raw:
    """Text that stands in a document as it is."""

    text: str


class Pairs(list[tuple[Any, Any]]):
    """A mapping whose keys may be anything, several times."""


INTEGERS: Final = (
    *(-(10**30), -(2**63) - 1, -(2**63), -(2**31), -7, -1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 17, 63, 64),
    *(100, 255, 256, 1000, 4096, 2**15 - 1, 2**15, 40_000, 2**16, 2**16 + 1, 10**6, 2**31 - 1),
    *(2**31, 2**32, 10**10, 2**40, 2**40 + 1, 2**48, 2**53, 2**63 - 1, 2**63, 2**64, 10**30),
)
FLOATS: Final = (
    *(-1.0, -0.0, 0.0, 5e-324, 1e-300, 1e-9, 0.1, 0.5, 1.0, 1.5, 2.0, 1e9, 1e18, 1e300),
    *(1.7e308, float("inf"), float("-inf"), float("nan")),
)
TEXTS: Final = (
    *("", " ", "a", "4", "-1", "1e3", "0x10", "1_000", "8KiB", "1.5 MiB", "99999TiB", "0.1B"),
    *("9" * 5000, "1." + "0" * 400, "é", "\u202e", "\x1b[31mred\x1b[0m", "a\x00b", "a\nb", "\t"),
    *("\ud800", "x" * 3000, "/dev/null", "..", "~", "%s{}", "<<", "=", "null", "yes", "nan"),
)
YAML_TEXTS: Final = (
    *("!!int zz", "!!float zz", "!!bool zz", "!!timestamp x", "!!timestamp 2001-13-01", "!!null x"),
    *("2001-13-45", "2001-01-01", "!!binary '*'", "!!binary YQ==", "!!set {a, b}", "!!omap [a: 1]"),
    *("!!pairs [a: 1]", "!!python/object:os.system x", "!x y", "!!str 5", "!!seq {a: 1}", "*a"),
    *("&a [*a]", "&a {b: *a}", "&a 5", "&a [1, *a, *a]", "{<<: *a, b: 1}", "{<<: {a: 1}}", "<<: 5"),
    *("? [1, 2]", "{[1]: 2}", "{{}: 1}", "|\n  text", "> x", "'", '"', '"\\x1b"', '"\\uD800"', "{"),
    *("}", "[", "]", ",", ":", "%YAML 9.9", "---", "...", "@", "`", "0o17", "010", "1:30", "0b1"),
    *("+1", "1__0", "1e400", ".inf", ".nan", "-.inf", "~", "=", "9" * 5000, "-" + "9" * 5000),
    *("[" * 300 + "]" * 300, "[" * 5000, "{a: " * 300 + "1" + "}" * 300, "- " * 2000, "#", "\x85"),
    *(
        "!!int 1e5",
        "!!int ''",
        "!!float ''",
        "!!float 1:60",
        "!!int -",
        "!!int 0x",
        "0x",
        "0b",
        "_",
    ),
    *("{a: 1, a: 2}", "!!map [1]", "!<tag:yaml.org,2002:int> x", "!!int [1]", "!!str {a: 1}"),
    "[&b [x,x,x,x,x,x,x,x,x], &c [*b,*b,*b,*b,*b,*b,*b,*b], &d [*c,*c,*c,*c,*c,*c,*c,*c], "
    "&e [*d,*d,*d,*d,*d,*d,*d,*d], &f [*e,*e,*e,*e,*e,*e,*e,*e], [*f,*f,*f,*f,*f,*f,*f,*f]]",
)
JSON_TEXTS: Final = (
    *("NaN", "Infinity", "-Infinity", "1e400", "-0", "01", "1.", "9" * 5000, "1E+99999", "nul"),
    *('"\\ud800"', '"\\x"', '"\\u00"', "'a'", "[" * 300 + "]" * 300, "[" * 100_000, "{", "}", "//"),
    *('{"a": 1, "a": 2}', '{"a": ' * 300 + "1" + "}" * 300, ",", "[1,]", '"\\u001b[31m"', "\x00"),
)

scalars = st.one_of(
    st.sampled_from(INTEGERS),
    st.sampled_from(FLOATS),
    st.sampled_from(TEXTS),
    st.sampled_from((True, False, None)),
    st.integers(-10, 100),
    st.text(max_size=8),
)
values = st.one_of(
    scalars,
    st.lists(scalars, max_size=4),
    st.lists(st.tuples(st.sampled_from(TEXTS), scalars), max_size=3).map(Pairs),
    st.sampled_from(([[]], Pairs(), [0] * 3000, [[1, 2], 3], Pairs([(None, 1)]))),
)


how_many = st.sampled_from((0, 1, 1, 1, 2, 2, 3, 4))
"""Changes of one document."""


def take_apart(document: Any) -> Any:
    """Return a document of Python's types as one that can be changed in place."""
    if isinstance(document, Mapping):
        return Pairs((key, take_apart(value)) for key, value in document.items())
    if isinstance(document, list | tuple):
        return [take_apart(value) for value in document]
    return document


def write(node: Any, *, is_json: bool) -> str:
    """Write a document as JSON, which is YAML, too, but for numbers that are none."""
    if isinstance(node, Raw):
        return node.text
    if isinstance(node, Pairs):
        entries = (f"{_write_key(k)}: {write(v, is_json=is_json)}" for k, v in node)
        return "{" + ", ".join(entries) + "}"
    if isinstance(node, list):
        return "[" + ", ".join(write(entry, is_json=is_json) for entry in node) + "]"
    if isinstance(node, float) and not is_json and (node != node or abs(node) == float("inf")):
        return ".nan" if node != node else ".inf" if node > 0 else "-.inf"
    return json.dumps(node)


def _write_key(key: Any) -> str:
    return key.text if isinstance(key, Raw) else json.dumps(key)


def _places(node: Any) -> list[tuple[Any, int]]:
    """Return every entry of every list and mapping, as the container and the index."""
    found = []
    pending = [node]
    while pending:
        container = pending.pop()
        if not isinstance(container, list):
            continue
        for i, entry in enumerate(container):
            found.append((container, i))
            pending.append(entry[1] if isinstance(container, Pairs) else entry)
    return found


def change(
    draw: Draw,
    document: Any,
    texts: Sequence[str],
    known: Mapping[str, Sequence[Any]],
) -> Any:
    """Change a document that was taken apart in one place; return it.

    Parameters
    ----------
    draw : callable
        Of hypothesis.
    document : object
        Its root may be changed, too.
    texts : sequence of str
        Pieces of text to put in place of values.
    known : mapping of str to sequence
        Keys that the reader knows, each with some values that make sense there.
    """
    places = _places(document)
    if not places or draw(st.integers(0, 60)) == 0:
        return _copy(draw(st.one_of(values, st.sampled_from(texts).map(Raw))))
    container, i = draw(st.sampled_from(places))
    what = draw(st.integers(-6, 11))
    is_mapping = isinstance(container, Pairs)
    key = container[i][0] if is_mapping else None
    if what <= 5:
        sensible = known.get(key, ()) if isinstance(key, str) else ()
        some = (
            values if not sensible or what in (0, 1) else st.sampled_from(sensible).map(take_apart)
        )
        new = _copy(draw(some))
        container[i] = (key, new) if is_mapping else new
    elif what == 6:
        raw = Raw(draw(st.sampled_from(texts)))
        is_key = is_mapping and draw(st.integers(0, 4)) == 0
        container[i] = (raw, container[i][1]) if is_key else (key, raw) if is_mapping else raw
    elif what == 7:
        del container[i]
    elif what == 8:
        container.insert(draw(st.integers(0, len(container))), container[i])
    elif what == 9 and is_mapping:
        container[i] = (draw(st.sampled_from((*known, *TEXTS))), container[i][1])
    elif what == 10:
        other, j = draw(st.sampled_from(places))
        entry = container[i][1] if is_mapping else container[i]
        if j < len(other):
            other[j] = (other[j][0], _copy(entry)) if isinstance(other, Pairs) else _copy(entry)
    elif known:
        name = draw(st.sampled_from(sorted(known)))
        new = take_apart(draw(st.sampled_from(known[name])))
        if is_mapping:
            container.append((name, new))
        else:
            container[i] = Pairs([(name, new)])
    return document


def _copy(node: Any) -> Any:
    if isinstance(node, Pairs):
        return Pairs((key, _copy(value)) for key, value in node)
    return [_copy(entry) for entry in node] if isinstance(node, list) else node


BYTES: Final = (
    *(b"\x00", b"\xff", b"\x1b[31m", b"\xef\xbb\xbf", b"\r\n", b"\t", b"\xc2\x85", b"\xe2\x80\xa8"),
    *(b"9" * 5000, b"/*", b"//", b"{", b"}", b"-", b"'", b'"', b"*", b"&a ", b"!!int ", b"---\n"),
)


def damage(draw: Draw, content: bytes) -> bytes:
    """Cut content short, change, insert or repeat some of it, or write it in another encoding."""
    what = draw(st.integers(0, 7))
    begin = draw(st.integers(0, max(0, len(content))))
    end = min(len(content), begin + draw(st.integers(0, 40)))
    if what == 0:
        return content[:begin]
    if what == 1:
        return content[:begin] + content[end:]
    if what == 2:
        return content[:begin] + draw(st.sampled_from(BYTES)) + content[begin:]
    if what == 3:
        return content[:begin] + draw(st.binary(max_size=4)) + content[end:]
    if what == 4:
        return content[:end] + content[begin:end] * draw(st.integers(1, 50)) + content[end:]
    if what == 5:
        name = draw(st.sampled_from(("utf-16", "utf-32", "utf-8-sig", "latin-1", "cp037", "utf-7")))
        return content.decode("utf-8", "replace").encode(name, "replace")
    if what == 6:
        return content[end:] + content[:begin]
    return content[:begin] + bytes(reversed(content[begin:end])) + content[end:]


def change_words(draw: Draw, text: str, words: Sequence[str], separator: str = " ") -> bytes:
    """Change, leave out, insert and repeat words of a text in a few places."""
    parts = text.split(separator)
    for _ in range(draw(how_many)):
        i = draw(st.integers(0, max(0, len(parts) - 1)))
        what = draw(st.integers(0, 3))
        if what == 0:
            parts[i : i + 1] = [draw(st.sampled_from(words))]
        elif what == 1:
            parts.insert(i, draw(st.sampled_from(words)))
        elif what == 2:
            del parts[i : i + 1]
        else:
            parts[i:i] = parts[i : i + draw(st.integers(1, 20))]
    content = separator.join(parts).encode("utf-8", "surrogatepass")
    return damage(draw, content) if draw(st.integers(0, 9)) == 0 else content


def documents(
    good: Sequence[Any],
    known: Mapping[str, Sequence[Any]],
    *,
    is_json: bool,
) -> st.SearchStrategy[bytes]:
    """Return one of some good documents as text, changed in a few places."""
    texts = JSON_TEXTS if is_json else YAML_TEXTS

    @st.composite
    def changed(draw: Draw) -> bytes:
        document = take_apart(draw(st.sampled_from(good)))
        for _ in range(draw(how_many)):
            document = change(draw, document, texts, known)
        content = write(document, is_json=is_json).encode("utf-8", "surrogatepass")
        return damage(draw, content) if draw(st.integers(0, 9)) == 0 else content

    return changed()
