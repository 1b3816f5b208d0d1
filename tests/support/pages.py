"""Reading a page as a browser would, with the standard library alone; a tag out of place is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

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
