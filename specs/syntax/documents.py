"""Strict readers of YAML and JSON documents, with limits on the size and without guesses."""

from __future__ import annotations

import json
import os
import re
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from collplan.specs.errors import CollplanError, SpecError, cut, naming, printable, show_value

if TYPE_CHECKING:
    from yaml.events import ScalarEvent

MAX_BYTES: Final = 2**25
"""Size of the largest document; a tuning table of 100,000 times has about 10 MB."""
MAX_NODES: Final = 1_000_000
"""Most values and keys of a document; every use of a YAML anchor counts all of its values."""


class Limits(NamedTuple):
    """Limits of a JSON document: number of bytes, and number of values and keys together."""

    n_bytes: int
    n_nodes: int


LIMITS: Final = Limits(MAX_BYTES, MAX_NODES)
MAX_DEPTH: Final = 32
"""Deepest nesting of lists and mappings; the deepest valid document has about 15 levels."""
MAX_DIGITS: Final = 40
"""Most digits of an integer; no field takes numbers of more than 19 digits."""

_LONGEST_PATH: Final = 400
"""Most characters of a path in messages that no file has."""
_TAG: Final = "tag:yaml.org,2002:"
_CONSTANTS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), (f"{_TAG}null", None)),
    **dict.fromkeys(("true", "True", "TRUE"), (f"{_TAG}bool", True)),
    **dict.fromkeys(("false", "False", "FALSE"), (f"{_TAG}bool", False)),
}
"""Words of YAML 1.2's core schema with type and value; yes, no, on, and off are text."""
_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_LEADING_ZERO: Final = re.compile(r"[-+]?0[0-9]+")
_FLOAT: Final = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_BEGINNINGS: Final = tuple("-+.0123456789")
"""Characters with which numbers begin."""
_TYPES: Final = {
    f"{_TAG}int": "a whole number",
    f"{_TAG}float": "a number",
    f"{_TAG}bool": "true or false",
    f"{_TAG}null": "null",
}


def read_document(path: Path, what: str, limits: Limits = LIMITS) -> Any:
    """Return the content of a YAML or JSON file.

    Parameters
    ----------
    path : Path
        File to read: as JSON if its suffix is ``.json``, otherwise as YAML.
    what : str
        Noun for the content of the file in messages, such as ``"spec"``.
    limits : Limits
        Limits of a ``.json`` file; YAML always has the default limits.

    Raises
    ------
    SpecError
        If the file cannot be read, is not a regular file, or is too large.
    """
    is_json = path.suffix == ".json"
    most = limits.n_bytes if is_json else MAX_BYTES
    text = read_text(path, what, f"give a {what} in YAML or JSON", most=most)
    return parse_json(text, str(path), limits.n_nodes) if is_json else parse_yaml(text, str(path))


def require_regular(path: Path, what: str, error: type[CollplanError] = SpecError) -> None:
    """Raise `error` unless `path` is a regular file; opening a FIFO would wait for a writer."""
    name = cut(printable(str(path)), _LONGEST_PATH)
    file = what if what.endswith("file") else f"{what} file"
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise error(f"{name}: no such file; give the path of a {what}") from None
    except (OSError, ValueError) as failure:
        reason = getattr(failure, "strerror", None) or str(failure)
        raise error(f"{name}: cannot be read: {reason}; give a {file}") from None
    if stat.S_ISDIR(mode):
        raise error(f"{name}: is a directory, and cannot be read; give a {file}")
    if not stat.S_ISREG(mode):
        kind = "FIFO" if stat.S_ISFIFO(mode) else "device or socket"
        raise error(f"{name}: is a {kind}, which is not read; give a regular {file}")


@contextmanager
def foreign_reader(
    path: Path,
    what: str,
    way_out: str,
    error: type[CollplanError] = SpecError,
    before: str = "",
) -> Iterator[None]:
    """Turn every exception of another library's reader into one line that names the file.

    Warnings of that library are not shown. Errors of collplan are raised as they are.

    Parameters
    ----------
    path : Path
        File that the block reads; it must be a regular file.
    what, way_out : str
        Words of the message: what the file should be, and what to do instead.
    error : type of CollplanError
        Error to raise.
    before : str
        Text that is put before the message, as the field that names the file.
    """
    with naming(before):
        require_regular(path, what, error)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except CollplanError:
            raise
        except Exception as failure:
            problem = f"is no {what} that can be read ({_reason(failure)})"
            if isinstance(failure, OSError) and failure.strerror:
                problem = f"cannot be read: {failure.strerror}"
            raise error(f"{path}: {problem}; {way_out}") from None


def _reason(failure: Exception) -> str:
    """Return the first line of an exception of another library, or its kind if it has no text."""
    if isinstance(failure, MemoryError):
        return "it does not fit into memory"
    text = str(failure).partition("\n")[0]
    if "set_int_max_str_digits" in text:
        return "it has a number of thousands of digits"
    return show_value(text.strip() or type(failure).__name__, plain=True)


def read_text(
    path: Path, what: str, way_out: str, error: type[CollplanError] = SpecError, *, most: int
) -> str:
    """Return the text of a regular file in UTF-8 of at most `most` bytes.

    Raises
    ------
    CollplanError
        Of the type `error`, if the file is missing, larger, or not text.
    """
    with foreign_reader(path, what, way_out, error):
        with path.open("rb") as file:
            # Python allocates as many bytes as it is asked to read.
            size = os.fstat(file.fileno()).st_size
            content = file.read(min(most, max(size, MAX_BYTES)) + 1)
        if len(content) > most:
            raise error(
                f"{path}: is larger than {most >> 20} MiB; a {what} is much smaller, {way_out}"
            )
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise error(f"{path}: is not text; {way_out}") from None


def parse_json(text: str, source: str, max_nodes: int = MAX_NODES) -> Any:
    """Return the value of a JSON document of at most `max_nodes` values and keys.

    Raises
    ------
    SpecError
        If the text is not JSON, a mapping has a key twice, or the document is too
        large or nested too deeply. The message begins with `source`.
    """

    def refuse_constant(word: str) -> Any:
        raise SpecError(f"{source}: {word} is not JSON; give a finite number")

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        seen: set[str] = set()
        for key, _ in pairs if len(found) < len(pairs) else ():
            if key in seen:
                raise SpecError(f"{source}: {key} is there twice in a mapping; keep one")
            seen.add(key)
        return found

    try:
        document = json.loads(
            text,
            object_pairs_hook=collect,
            parse_int=partial(_integer, source=source),
            parse_constant=refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise SpecError(f"{source}: line {error.lineno}: {error.msg}; mend the JSON") from None
    except RecursionError:
        raise SpecError(_too_deep(source)) from None
    check_size(document, source, max_nodes)
    return document


def check_size(document: Any, source: str, max_nodes: int = MAX_NODES) -> None:
    """Raise `SpecError` if a document without aliases has too many values or levels."""
    level, n_nodes, depth = [document], 1, 0
    while level:
        inner = [value for value in level if isinstance(value, dict | list)]
        n_nodes += sum(len(value) * (2 if isinstance(value, dict) else 1) for value in inner)
        if n_nodes > max_nodes:
            raise SpecError(_too_many(source, max_nodes))
        if depth == MAX_DEPTH and inner:
            raise SpecError(_too_deep(source))
        values = (one.values() if isinstance(one, dict) else one for one in inner)
        level, depth = list(chain.from_iterable(values)), depth + 1


def parse_yaml(text: str, source: str) -> Any:
    """Return the value of a YAML document according to YAML 1.2's core schema.

    A scalar is null, true, false, an integer (decimal, ``0o``, or ``0x``), a float, or
    text. Integers that YAML 1.1 and 1.2 read differently, such as ``010``, raise an error.
    Tags can only state these types. Aliases and merge keys (``<<``) are supported.

    Parameters
    ----------
    text : str
        The document.
    source : str
        Origin of the document, with which messages begin.

    Raises
    ------
    SpecError
        If the text is not a single YAML document, a mapping has a key twice, a tag does
        not fit its value, or the document is too large or nested too deeply.

    Examples
    --------
    >>> parse_yaml("{kind: bcast, count: 0x10, note: on}", "spec.yaml")
    {'kind': 'bcast', 'count': 16, 'note': 'on'}
    >>> parse_yaml("count: 010", "spec.yaml")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    collplan.specs.errors.SpecError: spec.yaml: line 1: 010 has a leading zero, ...
    """
    import yaml

    # libyaml, if PyYAML was built with it, is 16 times as fast; only its events are used.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Construction(yaml.parse(text, Loader=loader), source).run()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        # libyaml counts the end of the text as a line.
        where = f"line {min(mark.line, text.count(chr(10))) + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or "not YAML"
        if "nesting depth" in problem:  # libyaml reads ahead, and has a limit of its own
            raise SpecError(_too_deep(source)) from None
        problem = problem.replace("in this context", "here")
        raise SpecError(f"{source}: {where}{problem}; mend the YAML") from None


def write_json(document: Any) -> str:
    """Return `document` as one line of JSON with sorted keys: equal text for equal documents."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def write_yaml(document: Any, **layout: Any) -> str:
    """Return `document` as YAML that `parse_yaml` and readers of YAML 1.1 read alike."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Dumper that also quotes texts that are numbers only in YAML 1.2."""

    for tag, pattern in (("int", _INTEGER), ("float", _FLOAT)):
        whole = re.compile(f"(?:{pattern.pattern})$")
        Dumper.add_implicit_resolver(_TAG + tag, whole, _BEGINNINGS)
    return str(yaml.dump(document, Dumper=Dumper, sort_keys=False, **layout))


class _Construction:
    """Construction of a document's value from its events; `MAX_DEPTH` limits the recursion."""

    def __init__(self, events: Iterator[Any], source: str) -> None:
        self.events = events
        self.event: Any = None
        """Event that was read last; errors name its line."""
        self.source = source
        self.anchors: dict[str, tuple[Any, int]] = {}
        """Value and number of nodes, with expanded aliases, by anchor."""
        self.n_nodes = 0
        self.open: list[str | None] = []
        """Anchors of the lists and mappings that have begun and not ended."""

    def run(self) -> Any:
        """Return the value of the only document; None if it is empty."""
        import yaml

        found: list[Any] = []
        for event in self.events:
            self.event = event
            if isinstance(event, yaml.DocumentStartEvent):
                if found:
                    raise self._error("a second document begins; keep one")
                found.append(self._value())
        return found[0] if found else None

    @property
    def _where(self) -> str:
        mark = self.event.start_mark
        return f"{self.source}: line {1 if mark is None else mark.line + 1}"

    def _error(self, problem: str) -> SpecError:
        return SpecError(f"{self._where}: {problem}")

    def _count(self, n_nodes: int) -> None:
        self.n_nodes += n_nodes
        if self.n_nodes > MAX_NODES:
            raise SpecError(_too_many(self._where))

    def _value(self) -> Any:
        """Return the value that begins with the next event; `_END` if a list or mapping ends."""
        import yaml

        event: Any = next(self.events)
        self.event = event
        if isinstance(event, yaml.CollectionEndEvent):
            return _END
        if isinstance(event, yaml.AliasEvent):
            return self._alias()
        begin = self.n_nodes
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
            self._count(1)
        else:
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            if event.tag not in (None, "!", _TAG + ("map" if is_mapping else "seq")):
                raise self._error(_unknown_tag(event.tag))
            if len(self.open) == MAX_DEPTH:
                raise SpecError(_too_deep(self._where))
            self._count(1)
            self.open.append(event.anchor)
            value = self._mapping() if is_mapping else list(iter(self._value, _END))
            self.open.pop()
        if event.anchor is not None:
            self.anchors[event.anchor] = value, self.n_nodes - begin
        return value

    def _alias(self) -> Any:
        name = self.event.anchor
        if name in self.open:
            raise self._error(f"*{name} is inside the value it stands for; write it out")
        if name not in self.anchors:
            raise self._error(f"*{name} stands for nothing; mark a value before it: &{name}")
        value, n_nodes = self.anchors[name]
        self._count(n_nodes)
        return value

    def _mapping(self) -> dict[str, Any]:
        """Return the rest of a mapping, whose keys must be texts that occur once."""
        given: dict[str, Any] = {}
        merged: list[dict[str, Any]] = []
        for key in iter(self._value, _END):
            if isinstance(key, list | dict):
                raise self._error("a key is a list or a mapping; keys are words")
            text = getattr(self.event, "value", key)
            if text == "<<" and getattr(self.event, "implicit", (False,))[0]:
                merged += self._merged()
                continue
            if not isinstance(text, str):
                raise self._error("a key is an alias of no text; write the key")
            if text in given:
                raise self._error(f"{text} is there twice; keep one")
            given[text] = self._value()
        base: dict[str, Any] = {}
        for mapping in reversed(merged):
            base |= mapping
        return base | given

    def _merged(self) -> list[dict[str, Any]]:
        """Return the mappings that a merge key adds."""
        value = self._value()
        mappings = value if isinstance(value, list) else [value]
        if not all(isinstance(mapping, dict) for mapping in mappings):
            raise self._error("<< merges mappings, and this is none; use an alias of one")
        return mappings

    def _scalar(self, event: ScalarEvent) -> Any:
        """Return the value of a scalar, by its tag or else by the core schema."""
        text, tag = event.value, event.tag
        is_text = tag in ("!", f"{_TAG}str") or (tag is None and not event.implicit[0])
        if is_text:
            return text
        if tag not in (None, *_TYPES):
            raise self._error(_unknown_tag(str(tag)))
        found, value = self._plain(text)
        if tag in (None, found):
            return value
        if (tag, found) == (f"{_TAG}float", f"{_TAG}int"):
            return float(value)
        raise self._error(
            f"{show_value(text)} is not {_TYPES[tag]}, as its tag says; remove the tag"
        )

    def _plain(self, text: str) -> tuple[str, Any]:
        """Return the type and value of a plain scalar."""
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text[0] not in _BEGINNINGS:
            return f"{_TAG}str", text
        if _LEADING_ZERO.fullmatch(text):
            raise self._error(
                f"{show_value(text, plain=True)} has a leading zero, which YAML 1.1 reads as octal "
                f"and YAML 1.2 does not; write it without, or in quotes if it is text"
            )
        if _INTEGER.fullmatch(text):
            return f"{_TAG}int", _integer(text, self._where)
        if _FLOAT.fullmatch(text):
            return f"{_TAG}float", float(text.replace(".inf", "inf").replace(".nan", "nan"))
        return f"{_TAG}str", text


_END: Final = object()
"""Marker of the end of a list or mapping."""


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


def _too_many(source: str, max_nodes: int = MAX_NODES) -> str:
    return (
        f"{source}: more than {max_nodes:,} values, aliases written out; "
        f"a document here has far fewer"
    )
