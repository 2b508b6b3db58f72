"""``collplan schema``: JSON Schema of specs."""

from __future__ import annotations

import json
from pathlib import Path

from collplan.cli.options import Json, Options, flag, output_file
from collplan.planner.formats.output_files import write_text
from collplan.reports.output import print_line, print_result
from collplan.specs import json_schema


def schema_text(*, is_program: bool = False) -> str:
    """Return the text of the schema of specs, or of programs, as written to files."""
    schema = json_schema(is_program=is_program)
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


class SchemaOptions(Options):
    """Options of ``collplan schema``."""

    program: bool = flag("--program", "The schema of programs, which have steps.")
    output: Path | None = output_file("Write to this file.", "-o", "--output")
    as_json: Json = False


def command(options: SchemaOptions) -> None:
    """Write the JSON Schema of specs or programs, so that editors complete and check them.

    Begin a file with '# yaml-language-server: $schema=FILE' to have it used.
    """
    output, text = options.output, schema_text(is_program=options.program)
    if output is None:
        print_line(text.rstrip("\n"))
        return
    write_text(output, text)
    print_result({"output": str(output)}, f"wrote {output}", as_json=options.as_json)
