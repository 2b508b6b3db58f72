"""``collplan schema``: JSON Schema of specs."""

from __future__ import annotations

import json
from pathlib import Path

from collplan.cli.options import Json, Options, output_file
from collplan.planner.formats.output_files import write_text
from collplan.reports.output import print_line, print_result
from collplan.specs import json_schema


def schema_text() -> str:
    """Return the text of the schema as written to files."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


class SchemaOptions(Options):
    """Options of ``collplan schema``."""

    output: Path | None = output_file("Write to this file.", "-o", "--output")
    as_json: Json = False


def command(options: SchemaOptions) -> None:
    """Write the JSON Schema of specs, so that editors complete and check them.

    Begin a spec with '# yaml-language-server: $schema=FILE' to have it used.
    """
    output = options.output
    if output is None:
        print_line(schema_text().rstrip("\n"))
        return
    write_text(output, schema_text())
    print_result({"output": str(output)}, f"wrote {output}", as_json=options.as_json)
