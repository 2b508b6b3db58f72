"""A strict reader of Pajé traces, written from the format's specification, version 1.3."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

FIELDS = {
    "PajeDefineContainerType": {"Name", "Type"},
    "PajeDefineStateType": {"Name", "Type"},
    "PajeDefineLinkType": {"Name", "Type", "StartContainerType", "EndContainerType"},
    "PajeDefineEntityValue": {"Name", "Type", "Color"},
    "PajeCreateContainer": {"Time", "Name", "Type", "Container"},
    "PajeDestroyContainer": {"Time", "Name", "Type"},
    "PajeSetState": {"Time", "Type", "Container", "Value"},
    "PajeStartLink": {"Time", "Type", "Container", "Value", "StartContainer", "Key"},
    "PajeEndLink": {"Time", "Type", "Container", "Value", "EndContainer", "Key"},
}
TYPES = {"date", "int", "double", "hex", "string", "color"}


@dataclass
class Paje:
    """Definitions and events of a trace up to here; `read` asserts every rule on the way."""

    definitions: dict[str, tuple[str, list[tuple[str, str]]]] = field(default_factory=dict)
    types: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By alias: container, state or link, and the type it belongs to."""
    ends: dict[str, tuple[str, str]] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    containers: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By alias: type and parent."""
    names: set[str] = field(default_factory=set)
    states: list[tuple[float, str, str]] = field(default_factory=list)
    open_links: dict[tuple[str, str, str], tuple[float, str]] = field(default_factory=dict)
    links: list[tuple[float, float, str, str]] = field(default_factory=list)
    now: float = 0.0

    def read(self, text: str) -> Paje:
        lines = text.splitlines()
        body = next(i for i, line in enumerate(lines) if not line.startswith("%"))
        self.read_header(lines[:body])
        for line in lines[body:]:
            number, *values = shlex.split(line)
            event, fields = self.definitions[number]
            assert len(values) == len(fields), line
            for (_, kind), value in zip(fields, values, strict=True):
                if kind == "date":
                    float(value)
                elif kind == "color":
                    assert all(0 <= float(part) <= 1 for part in value.split()), line
            row = {name: value for (name, _), value in zip(fields, values, strict=True)}
            if "Time" in row:
                assert float(row["Time"]) >= self.now, line
                self.now = float(row["Time"])
            getattr(self, event.removeprefix("Paje"))(row)
        assert self.open_links == {}
        return self

    def read_header(self, lines: list[str]) -> None:
        name, number, fields = "", "", []
        for line in lines:
            words = line.lstrip("%").split()
            if words[0] == "EventDef":
                assert line.startswith("%EventDef ")
                assert not name
                _, name, number = words
                assert number.isdigit()
                assert number not in self.definitions
                fields = []
            elif words[0] == "EndEventDef":
                assert {field for field, _ in fields} - {"Alias"} == FIELDS[name], name
                self.definitions[number] = (name, fields)
                name = ""
            else:
                assert words[1] in TYPES, line
                fields.append((words[0], words[1]))
        assert not name

    def define(self, row: dict[str, str], kind: str) -> None:
        assert row["Alias"] not in self.types
        assert row["Type"] == "0" or self.types[row["Type"]][0] == "container"
        self.types[row["Alias"]] = (kind, row["Type"])

    def DefineContainerType(self, row: dict[str, str]) -> None:
        self.define(row, "container")

    def DefineStateType(self, row: dict[str, str]) -> None:
        self.define(row, "state")

    def DefineLinkType(self, row: dict[str, str]) -> None:
        self.define(row, "link")
        for end in ("StartContainerType", "EndContainerType"):
            above = row[end]
            while above != row["Type"]:
                assert self.types[above][0] == "container"
                above = self.types[above][1]
        self.ends[row["Alias"]] = (row["StartContainerType"], row["EndContainerType"])

    def DefineEntityValue(self, row: dict[str, str]) -> None:
        assert self.types[row["Type"]][0] in ("state", "link")
        assert row["Alias"] not in self.values
        self.values[row["Alias"]] = row["Type"]

    def CreateContainer(self, row: dict[str, str]) -> None:
        assert row["Alias"] not in self.containers
        assert row["Name"] not in self.names
        kind, parent_type = self.types[row["Type"]]
        assert kind == "container"
        parent = row["Container"]
        assert parent_type == (self.containers[parent][0] if parent != "0" else "0")
        self.containers[row["Alias"]] = (row["Type"], parent)
        self.names.add(row["Name"])

    def DestroyContainer(self, row: dict[str, str]) -> None:
        assert self.containers[row["Name"]][0] == row["Type"]

    def SetState(self, row: dict[str, str]) -> None:
        assert self.types[row["Type"]] == ("state", self.containers[row["Container"]][0])
        assert self.values[row["Value"]] == row["Type"]
        self.states.append((self.now, row["Container"], row["Value"]))

    def StartLink(self, row: dict[str, str]) -> None:
        self.check_link(row, row["StartContainer"], 0)
        key = (row["Container"], row["Value"], row["Key"])
        assert key not in self.open_links
        self.open_links[key] = (self.now, row["StartContainer"])

    def EndLink(self, row: dict[str, str]) -> None:
        self.check_link(row, row["EndContainer"], 1)
        begin, source = self.open_links.pop((row["Container"], row["Value"], row["Key"]))
        self.links.append((begin, self.now, source, row["EndContainer"]))

    def check_link(self, row: dict[str, str], end: str, side: int) -> None:
        assert self.types[row["Type"]] == ("link", self.containers[row["Container"]][0])
        assert self.values[row["Value"]] == row["Type"]
        assert self.containers[end][0] == self.ends[row["Type"]][side]
