"""Pages of the reference that are generated from the command line itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import typer

from collplan.cli.group import COMMANDS, group

_TYPES: Final = (
    (r" <(?:path|str|list\[\w+\])>", ""),
    (r"<int range>", "N"),
    (r"<float range>", "X"),
)
"""Names of types that help texts have in place of a value's name, and what a reader expects."""


def command_pages() -> Iterator[tuple[str, str]]:
    """Generate the name and the text of a page for the program and for each command."""
    program = typer.Context(group(), info_name="collplan")
    yield "collplan", "\n".join(_program(program))
    for name in COMMANDS:
        command = group().get_command(program, name)
        context = typer.Context(command, info_name=name, parent=program)
        yield name, "\n".join(_command(context, 1))


def _program(context: Any) -> Iterator[str]:
    yield from _command(context, 1)
    yield "## Commands\n"
    yield "| command | effect |\n|---|---|"
    for name, text in COMMANDS.items():
        yield f"| [`{name}`]({name}.md) | {_cell(text)} |"
    yield ""


def _command(context: Any, level: int) -> Iterator[str]:
    command = context.command
    yield f"{'#' * level} {context.command_path}\n"
    yield _prose(command.help or "")
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```\n"
    for kind in ("argument", "option"):
        rows = [one for one in command.params if one.param_type_name == kind]
        records = filter(None, (one.get_help_record(context) for one in rows))
        lines = [f"| {_code(names)} | {_cell(text)} |" for names, text in records]
        if lines:
            yield f"| {kind} | meaning |\n|---|---|"
            yield from lines
            yield ""
    for name, child in getattr(command, "commands", {}).items():
        yield from _command(typer.Context(child, info_name=name, parent=context), level + 1)


def _prose(text: str) -> str:
    r"""Return a help text as Markdown; paragraphs after \b keep their lines."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    shown = (
        f"```text\n{part.removeprefix(chr(8)).strip(chr(10))}\n```"
        if part.startswith("\b")
        else part
        for part in paragraphs
    )
    return "\n\n".join(shown) + "\n"


def _cell(text: str | None) -> str:
    """Return text for a cell of a table; names in capitals are values that the user gives."""
    escaped = re.sub(r"([*_<>\[\]|])", r"\\\1", text or "")
    return " ".join(escaped.split())


def _code(text: str) -> str:
    for pattern, name in _TYPES:
        text = re.sub(pattern, name, text)
    for sign in "&<[]|*_":
        text = text.replace(sign, f"&#{ord(sign)};")
    return f"<code>{text}</code>"
