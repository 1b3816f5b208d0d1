"""Codes written letter by letter, in the forms in which files hold them."""

from __future__ import annotations

from collections.abc import Callable

PARTED: dict[str, Callable[[str], str]] = {
    "json": lambda code: '"digits": [' + ", ".join(f'"{each}"' for each in code) + "]",
    "pretty json": lambda code: '"digits": [\n' + ",\n".join(f'            "{each}"' for each in code) + "\n]",
    "yaml": lambda code: "-digits:" + "".join(f"\n  - {each}" for each in code) + "\n",
    "yaml crlf": lambda code: "-digits:" + "".join(f"\r\n- {each}" for each in code) + "\r\n",
    "blank lines": "\r\n\r\n".join,
    "cells": lambda code: "<tr>" + "".join(f"<td>{each}</td>" for each in code) + "</tr>",
    "cells over lines": lambda code: (
        "<table>" + "".join(f'<tr>\n    <td class="wide">{each}</td>\n</tr>\n' for each in code) + "</table>"
    ),
    "items": lambda code: "<UL>" + "".join(f"<LI>{each}</LI>\n" for each in code) + "</UL>",
    "paragraphs": lambda code: "".join(f"<p>{each}</p>" for each in code),
    "breaks": "<br />\n".join,
    "table": "  |  ".join,
    "semicolons": ";\n    ".join,
    "dots": " ...... ".join,
}
"""Forms by name: each writes a code."""

DISGUISES = {
    name: tuple(chr(first + at) for at in range(8))
    for name, first in {
        "circled": 0x24D0,
        "circled capitals": 0x24B6,
        "parenthesised": 0x249C,
        "parenthesised capitals": 0x1F110,
        "squared": 0x1F130,
        "negative circled": 0x1F150,
        "negative squared": 0x1F170,
        "regional indicators": 0x1F1E6,
        "tag characters": 0xE0061,
        "tag digits": 0xE0030,
    }.items()
}
"""Eight letters or digits of each alphabet of symbols that read as letters."""
