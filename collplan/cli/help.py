"""``collplan help``: commands, fields of specs and passes, explained on the terminal."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import asdict
from textwrap import fill
from typing import Any, Final

import typer

from collplan.cli.options import Json, Options, argument
from collplan.reports.output import print_json, print_line, print_table
from collplan.specs.errors import CollplanError, show_value, suggest

SPEC: Final = "spec"
"""Topic of spec files, which also precedes the names of their types in topics."""

WIDTH: Final = 88
"""Width of the text about fields, in characters."""


class HelpOptions(Options):
    """Options of ``collplan help``."""

    topic: list[str] = argument(
        "[TOPIC]", "A command, a pass, or 'spec' with a type of its fields.", default=()
    )
    as_json: Json = False


def command(options: HelpOptions) -> None:
    """Explain a command, a pass, or the fields of specs.

    'collplan help bench overlap' explains a command, 'collplan help segment' a
    pass with its options, 'collplan help spec' the fields of a spec, and
    'collplan help spec Machine' those of a machine. Without a topic, it lists
    all topics.
    """
    from collplan.cli.group import COMMANDS, group
    from collplan.planner.passes.registry import pass_registry

    words = list(options.topic)
    if not words:
        _list_topics(as_json=options.as_json)
    elif words[0] == SPEC:
        _explain_fields(words[1:], as_json=options.as_json)
    elif words[0] in COMMANDS:
        _print(_help_of(typer.Context(group(), info_name="collplan"), words), options)
    elif len(words) == 1 and words[0] in pass_registry:
        run = inspect.unwrap(pass_registry[words[0]].rewrite)
        _print(f"Pass {words[0]}: {inspect.getdoc(run)}", options)
    else:
        topics = [*COMMANDS, SPEC, *pass_registry]
        hint = suggest(words[0], topics)
        raise CollplanError(
            f"{show_value(' '.join(words))} is not a topic; {hint}'collplan help' lists all topics"
        )


def _print(text: str, options: HelpOptions) -> None:
    if options.as_json:
        print_json({"topic": " ".join(options.topic), "text": text})
    else:
        print_line(text)


def _help_of(context: Any, words: list[str]) -> str:
    """Return the help of a command or of one of its subcommands."""
    found = context.command.get_command(context, words[0])
    inner = typer.Context(found, info_name=words[0], parent=context)
    if len(words) == 1:
        return str(found.get_help(inner))
    names = list(getattr(found, "commands", {}))
    if words[1] not in names:
        valid = f"valid: {', '.join(names)}" if names else "it has no commands of its own"
        raise CollplanError(f"{inner.command_path} has no command {show_value(words[1])}; {valid}")
    return _help_of(inner, words[1:])


def _topics() -> Iterator[tuple[str, str]]:
    from collplan.cli.group import COMMANDS
    from collplan.planner.passes.registry import pass_registry
    from collplan.reports.spec_fields import definitions

    yield from COMMANDS.items()
    for name, one in definitions().items():
        topic = SPEC if name == "Spec" else f"{SPEC} {name}"
        yield topic, one.about[0].partition("\n")[0]
    yield from ((name, f"Pass: {one.summary}") for name, one in pass_registry.items())


def _list_topics(*, as_json: bool) -> None:
    topics = dict(_topics())
    if as_json:
        print_json({"topics": topics})
    else:
        print_table(["topic", ""], list(topics.items()))


def _explain_fields(words: list[str], *, as_json: bool) -> None:
    """Print the fields of a spec, or of a type of its values."""
    from collplan.reports.spec_fields import definitions

    known = {name.lower(): (name, one) for name, one in definitions().items()}
    name, one = known.get(" ".join(words or [SPEC]).lower(), ("", None))
    if one is None:
        valid = ", ".join(name for name, _ in known.values())
        raise CollplanError(
            f"{show_value(' '.join(words))} is not a type of fields in specs; valid: {valid}"
        )
    if as_json:
        fields = [asdict(field) for field in one.fields]
        print_json({"type": name, "about": one.about, "short": one.short, "fields": fields})
        return
    for text in one.about:
        print_line(text + "\n")
    for text in one.short:
        print_line(fill(f"It can be {text}.", WIDTH) + "\n")
    for field in one.fields:
        default = f"; default {field.default}" if field.default else ""
        print_line(fill(f"{field.name}: {field.value}{default}", WIDTH, subsequent_indent="  "))
        print_line(fill(field.meaning, WIDTH, initial_indent="    ", subsequent_indent="    "))
