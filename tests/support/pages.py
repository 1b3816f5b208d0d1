"""Reading a page as a browser would, with the standard library alone; a tag out of place is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

VOID = {"meta", "link", "br", "hr", "img", "input", "base"}


@dataclass
class Node:
    """An element with its attributes, children and texts."""

    tag: str
    attributes: dict[str, str]
    parent: Node | None = None
    children: list[Node | str] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.walk()

    def all(self, *tags: str) -> list[Node]:
        return [node for node in self.walk() if node.tag in tags]

    @property
    def text(self) -> str:
        parts = [child if isinstance(child, str) else child.text for child in self.children]
        return re.sub(r"\s+", " ", "".join(parts)).strip()

    @property
    def classes(self) -> set[str]:
        return set(self.attributes.get("class", "").split())

    def inside(self, tag: str) -> bool:
        node = self.parent
        while node is not None and node.tag != tag:
            node = node.parent
        return node is not None


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("#root", {})
        self.at = self.root

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) != len(names):
            raise AssertionError(f"<{tag}> names an attribute twice: {names}")
        node = Node(tag, {name: value or "" for name, value in attrs}, self.at)
        self.at.children.append(node)
        if tag not in VOID:
            self.at = node

    def handle_endtag(self, tag: str) -> None:
        if self.at.tag != tag or self.at.parent is None:
            raise AssertionError(f"</{tag}> closes <{self.at.tag}> at {self.getpos()}")
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.children.append(data)


def read(html: str) -> Node:
    """The page as a tree.

    Raises:
        AssertionError: an element is not closed where it should be.
    """
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.at is reader.root, f"<{reader.at.tag}> is never closed"
    return reader.root


def check_structure(root: Node) -> None:
    """Landmarks, headings, names and scopes that a screen reader needs are there, and references have their targets."""
    assert root.all("html")[0].attributes["lang"] == "en"
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert len(root.all(landmark)) == 1
    levels = [int(node.tag[1]) for node in root.all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [node.attributes["id"] for node in root.walk() if "id" in node.attributes]
    assert len(set(ids)) == len(ids)
    for node in root.walk():
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(node.attributes.get(name, "").split()) <= set(ids)
        if node.tag == "a":
            assert node.attributes["href"][1:] in ids
    for svg in root.all("svg"):
        assert svg.attributes["role"] == "img"
        assert svg.all("title")[0].parent is svg
        assert svg.all("title")[0].text
        if "plot" in svg.classes:
            assert len(svg.all("desc")[0].text) > 20
    for node in root.all("table"):
        assert node.all("caption")[0].text
        assert node.all("th")
        assert all("scope" in cell.attributes for cell in node.all("th"))
    for node in root.walk():
        if "scroll" in node.classes:
            assert node.attributes["tabindex"] == "0"
            assert node.attributes["aria-label"]
    assert all(node.parent is not None and node.parent.tag == "details" for node in root.all("summary"))
