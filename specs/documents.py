"""Strict readers of YAML and JSON documents: bounded in size, and nothing is guessed."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.specs.errors import SpecError, show_value

if TYPE_CHECKING:
    from yaml.events import Event, ScalarEvent

MAX_BYTES: Final = 2**25
"""Largest document; a tuning table of 100,000 times has about 10 MB."""
MAX_NODES: Final = 1_000_000
"""Most values and keys of a document, every use of a YAML anchor counted in full."""
MAX_DEPTH: Final = 32
"""Deepest nesting of lists and mappings; the deepest valid document has about 15 levels."""
MAX_DIGITS: Final = 40
"""Most digits of an integer; no field takes numbers of more than 19 digits."""

_TAG: Final = "tag:yaml.org,2002:"
_CONSTANTS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), (f"{_TAG}null", None)),
    **dict.fromkeys(("true", "True", "TRUE"), (f"{_TAG}bool", True)),
    **dict.fromkeys(("false", "False", "FALSE"), (f"{_TAG}bool", False)),
}
"""Words of YAML 1.2's core schema with their types and values; yes, no, on and off are text."""
_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9]+")
_FLOAT: Final = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_BEGINNINGS: Final = tuple("-+.0123456789")
"""First characters of numbers."""
_TYPES: Final = {
    f"{_TAG}int": "a whole number",
    f"{_TAG}float": "a number",
    f"{_TAG}bool": "true or false",
    f"{_TAG}null": "null",
}


def read_document(path: Path, what: str) -> Any:
    """Return the content of a YAML or JSON file, whatever it describes.

    Parameters
    ----------
    path : Path
        A ``.json`` file is read as JSON, any other as YAML.
    what : str
        What the file should hold, for messages: ``"spec"``.

    Raises
    ------
    SpecError
        If the file cannot be read, is not a regular file, or is too large.
    """
    require_regular(path, what)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}; give a {what} file") from None
    if len(content) > MAX_BYTES:
        raise SpecError(
            f"{path}: is larger than {MAX_BYTES // 2**20} MiB; a {what} is much smaller, "
            f"give another file"
        )
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise SpecError(f"{path}: is not text; give a {what} in YAML or JSON") from None
    parse = parse_json if path.suffix == ".json" else parse_yaml
    return parse(text, str(path))


def require_regular(path: Path, what: str) -> None:
    """Raise `SpecError` unless `path` is a regular file; opening a FIFO would wait for a writer."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise SpecError(f"{path}: no such file; give the path of a {what}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"{path}: cannot be read: {reason}; give a {what} file") from None
    if stat.S_ISDIR(mode):
        raise SpecError(f"{path}: is a directory, and cannot be read; give a {what} file")
    if not stat.S_ISREG(mode):
        kind = "FIFO" if stat.S_ISFIFO(mode) else "device or socket"
        raise SpecError(f"{path}: is a {kind}, which is not read; give a regular {what} file")


def parse_json(text: str, source: str) -> Any:
    """Return the value of a JSON document.

    Raises
    ------
    SpecError
        If the text is not JSON, a key is there twice, or the document is too
        large or nested too deeply; the message begins with `source`.
    """

    def refuse_constant(word: str) -> Any:
        raise SpecError(f"{source}: {word} is not JSON; give a finite number")

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    raise SpecError(f"{source}: {key} is there twice in a mapping; keep one")
                seen.add(key)
        return found

    def read_integer(digits: str) -> int:
        return _integer(digits, source)

    try:
        document = json.loads(
            text,
            object_pairs_hook=collect,
            parse_int=read_integer,
            parse_constant=refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise SpecError(f"{source}: line {error.lineno}: {error.msg}; mend the JSON") from None
    except RecursionError:
        raise SpecError(_too_deep(source)) from None
    _check_size(document, source)
    return document


def _check_size(document: Any, source: str) -> None:
    """Raise `SpecError` where a document without aliases has too many values or levels."""
    level, n_nodes, depth = [document], 1, 0
    while level:
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                n_nodes += 2 * len(value)
                below.extend(value.values())
            elif isinstance(value, list):
                n_nodes += len(value)
                below.extend(value)
        if n_nodes > MAX_NODES:
            raise SpecError(_too_many(source))
        if depth == MAX_DEPTH and any(isinstance(value, dict | list) for value in level):
            raise SpecError(_too_deep(source))
        level, depth = below, depth + 1


def parse_yaml(text: str, source: str) -> Any:
    """Return the value of a YAML document, by YAML 1.2's core schema.

    Scalars are null, true, false, decimal, ``0o`` and ``0x`` integers, floats, or
    text; what YAML 1.1 and 1.2 read differently, as ``010``, is refused. Tags can
    only state these types. Aliases and merge keys (``<<``) work.

    Parameters
    ----------
    text : str
        The document.
    source : str
        Where it comes from; messages begin with it.

    Raises
    ------
    SpecError
        If the text is not one YAML document, a key is there twice, a tag does not
        fit its value, or the document is too large or nested too deeply.

    Examples
    --------
    >>> parse_yaml("{kind: bcast, count: 0x10, note: on}", "spec.yaml")
    {'kind': 'bcast', 'count': 16, 'note': 'on'}
    >>> parse_yaml("count: 010", "spec.yaml")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    collplan.specs.errors.SpecError: spec.yaml: line 1: 010 has a leading zero, ...
    """
    import yaml

    # libyaml, where PyYAML has it, is 16 times as fast; only its events are used.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Construction(source).run(yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        # libyaml counts the end of the text as a line.
        where = f"line {min(mark.line, text.count(chr(10))) + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or "not YAML"
        problem = problem.replace("in this context", "here")
        raise SpecError(f"{source}: {where}{problem}; mend the YAML") from None


def write_yaml(document: Any, **layout: Any) -> str:
    """Return `document` as YAML that `parse_yaml` and readers of YAML 1.1 read as the same."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes texts, too, that are numbers in YAML 1.2 only."""

    for tag, pattern in (("int", _INTEGER), ("float", _FLOAT)):
        whole = re.compile(f"(?:{pattern.pattern})$")
        Dumper.add_implicit_resolver(_TAG + tag, whole, _BEGINNINGS)
    return str(yaml.dump(document, Dumper=Dumper, sort_keys=False, **layout))


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    items: list[Any]
    """Entries of a list; keys and values of a mapping in turn."""
    is_mapping: bool
    anchor: str | None
    begin: int
    """Nodes of the document before it."""
    merged: list[Any]
    """Mappings that merge keys add."""
    keys: set[str]


class _Construction:
    """The value of a document, built from its events without recursion."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.anchors: dict[str, tuple[Any, int]] = {}
        """Values by anchor, with the number of nodes of each, aliases expanded."""
        self.n_nodes = 0
        self.open: list[_Open] = []

    def run(self, events: Iterator[Event]) -> Any:
        """Return the value of the one document, None where it is empty."""
        import yaml

        root: list[Any] = []
        for event in events:
            if isinstance(event, yaml.ScalarEvent):
                value, begin = self._scalar(event), self.n_nodes
                self._count(event, 1)
                self._register(event.anchor, value, begin)
            elif isinstance(event, yaml.AliasEvent):
                value = self._alias(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._begin(event)
                continue
            elif isinstance(event, yaml.CollectionEndEvent):
                value = self._end(event)
            elif isinstance(event, yaml.DocumentStartEvent) and root:
                raise self._error(event, "a second document begins; keep one")
            else:
                continue
            self._add(event, value, self.open[-1] if self.open else None, root)
        return root[0] if root else None

    def _error(self, event: Event, problem: str) -> SpecError:
        return SpecError(f"{self.source}: line {_line(event)}: {problem}")

    def _count(self, event: Event, n_nodes: int) -> None:
        self.n_nodes += n_nodes
        if self.n_nodes > MAX_NODES:
            raise SpecError(_too_many(f"{self.source}: line {_line(event)}"))

    def _register(self, anchor: str | None, value: Any, begin: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = value, self.n_nodes - begin

    def _alias(self, event: Any) -> Any:
        name = event.anchor
        if any(entry.anchor == name for entry in self.open):
            raise self._error(event, f"*{name} is inside the value it stands for; write it out")
        if name not in self.anchors:
            raise self._error(event, f"*{name} stands for nothing; mark a value before it: &{name}")
        value, n_nodes = self.anchors[name]
        self._count(event, n_nodes)
        return value

    def _begin(self, event: Any) -> None:
        import yaml

        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _TAG + ("map" if is_mapping else "seq")):
            raise self._error(event, _unknown_tag(event.tag))
        if len(self.open) == MAX_DEPTH:
            raise SpecError(_too_deep(f"{self.source}: line {_line(event)}"))
        begin = self.n_nodes
        self._count(event, 1)
        self.open.append(_Open([], is_mapping, event.anchor, begin, [], set()))

    def _end(self, event: Event) -> Any:
        done = self.open.pop()
        value: Any = done.items
        if done.is_mapping:
            given = dict(zip(done.items[::2], done.items[1::2], strict=True))
            value = {}
            for mapping in reversed(done.merged):
                value |= mapping
            value |= given
        self._register(done.anchor, value, done.begin)
        return value

    def _add(self, event: Event, value: Any, parent: _Open | None, root: list[Any]) -> None:
        """Put a finished value where it belongs."""
        if parent is None:
            root.append(value)
        elif not parent.is_mapping:
            parent.items.append(value)
        elif len(parent.items) % 2 == 0:
            self._add_key(event, value, parent)
        elif parent.items[-1] is _MERGE:
            parent.items.pop()
            mappings = value if isinstance(value, list) else [value]
            if not all(isinstance(mapping, dict) for mapping in mappings):
                raise self._error(
                    event, "<< merges mappings, and this is none; use an alias of one"
                )
            parent.merged.extend(mappings)
        else:
            parent.items.append(value)

    def _add_key(self, event: Any, key: Any, parent: _Open) -> None:
        """Take a key as its text, once."""
        if isinstance(key, list | dict):
            raise self._error(event, "a key is a list or a mapping; keys are words")
        if getattr(event, "value", None) == "<<" and event.implicit[0]:
            parent.items.append(_MERGE)
            return
        text = getattr(event, "value", key)
        if not isinstance(text, str):
            raise self._error(event, "a key is an alias of no text; write the key")
        if text in parent.keys:
            raise self._error(event, f"{text} is there twice; keep one")
        parent.keys.add(text)
        parent.items.append(text)

    def _scalar(self, event: ScalarEvent) -> Any:
        """Return a scalar's value: by its tag, or as the core schema reads plain text."""
        text = event.value
        tag = event.tag
        if tag == "!" or (tag is None and not event.implicit[0]):
            return text
        if tag not in (None, f"{_TAG}str", *_TYPES):
            raise self._error(event, _unknown_tag(str(tag)))
        if tag == f"{_TAG}str":
            return text
        found, value = self._plain(event, text)
        if tag in (None, found):
            return value
        if (tag, found) == (f"{_TAG}float", f"{_TAG}int"):
            return float(value)
        raise self._error(
            event, f"{show_value(text)} is not {_TYPES[tag]}, as its tag says; remove the tag"
        )

    def _plain(self, event: ScalarEvent, text: str) -> tuple[str, Any]:
        """Return the type and value of a plain scalar."""
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] not in _BEGINNINGS:
            return f"{_TAG}str", text
        if _LEADING_ZERO.fullmatch(text):
            raise self._error(
                event,
                f"{show_value(text, plain=True)} has a leading zero, which YAML 1.1 reads as octal "
                f"and YAML 1.2 does not; write it without, or in quotes if it is text",
            )
        if _INTEGER.fullmatch(text):
            return f"{_TAG}int", _integer(text, f"{self.source}: line {_line(event)}")
        if _FLOAT.fullmatch(text):
            return f"{_TAG}float", float(text.replace(".inf", "inf").replace(".nan", "nan"))
        return f"{_TAG}str", text


_MERGE: Final = object()
"""Stands for the key ``<<`` until its value comes."""


def _integer(text: str, source: str) -> int:
    if len(text) > MAX_DIGITS:
        raise SpecError(
            f"{source}: a number of {len(text)} digits; no field takes more than 19, give fewer"
        )
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


def _unknown_tag(tag: str) -> str:
    shown = tag.replace(_TAG, "!!")
    return f"the tag {show_value(shown, plain=True)} has no meaning here; remove it"


def _too_deep(source: str) -> str:
    return f"{source}: nested too deeply; use at most {MAX_DEPTH} levels of lists and mappings"


def _too_many(source: str) -> str:
    return (
        f"{source}: more than {MAX_NODES:,} values, aliases written out; "
        f"a document here has far fewer"
    )


def _line(event: Event) -> int:
    """Return the line an event begins in, from 1."""
    return 1 if event.start_mark is None else event.start_mark.line + 1
