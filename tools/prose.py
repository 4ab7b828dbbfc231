"""What stands in Markdown: headings, links, pictures, plain words, and the definitions of terms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

# Stands for what is not prose (code, formulas, links): no term matches across it.
NOT_PROSE = "\N{OBJECT REPLACEMENT CHARACTER}"
DEFINITION = re.compile(r"^> \*\*(?P<term>[^*]+)\*\* — (?P<meaning>.*(?:\n>(?! \*\*[^*]+\*\* — ).*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Heading:
    """A heading: its level, 1 to 6, and its text without markup."""

    level: int
    text: str


@dataclass(frozen=True)
class Picture:
    """A picture in Markdown or HTML."""

    source: str
    alt: str


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").use(dollarmath_plugin, double_inline=True)


def _inlines(markdown: str) -> Iterator[tuple[Token | None, Token]]:
    """Each piece of running text, after the token that opens the block around it; HTML blocks come as they are."""
    before = None
    for token in _parser().parse(markdown):
        if token.type in ("inline", "html_block"):
            yield before, token
        before = token


def headings(markdown: str) -> list[Heading]:
    """The headings, in order; what looks like one in a code block is none."""
    return [
        Heading(int(before.tag[1]), _text(token))
        for before, token in _inlines(markdown)
        if before is not None and before.type == "heading_open"
    ]


def _text(token: Token) -> str:
    """The visible text of a piece of running text."""
    return "".join(
        " " if child.type in ("softbreak", "hardbreak") else child.content
        for child in token.children or []
        if child.type not in ("html_inline", "image")
    )


def links(markdown: str) -> list[str]:
    """Where the links lead, those of HTML too."""
    found = []
    for token in _flat(markdown):
        if token.type == "link_open":
            found.append(str(token.attrs["href"]))
        elif token.type in ("html_inline", "html_block"):
            found += [attributes["href"] for attributes in _tags(token.content, "a") if attributes.get("href")]
    return found


def pictures(markdown: str) -> list[Picture]:
    """The pictures, those of HTML too."""
    found = []
    for token in _flat(markdown):
        if token.type == "image":
            found.append(Picture(str(token.attrs["src"]), token.content))
        elif token.type in ("html_inline", "html_block"):
            found += [Picture(a.get("src") or "", a.get("alt") or "") for a in _tags(token.content, "img")]
    return found


def words(markdown: str) -> str:
    """The prose alone: without code, formulas, links and HTML, with a NOT_PROSE between paragraphs too."""
    lines = []
    for _, token in _inlines(markdown):
        text, depth = "", 0
        for child in token.children or []:
            depth += child.nesting if child.type.startswith("link_") else 0
            if child.type in ("softbreak", "hardbreak"):
                text += " "
            elif child.type == "text":
                text += NOT_PROSE if depth else child.content
            elif child.nesting == 0:
                text += NOT_PROSE
        lines.append(text)
    return f"\n{NOT_PROSE}\n".join(lines)


def definitions(markdown: str) -> list[tuple[str, str]]:
    """Terms and their meanings, from lines `> **term** — meaning`, which may go on in lines that begin with `>`."""
    return [
        (found["term"].strip(), " ".join(line.removeprefix(">").strip() for line in found["meaning"].splitlines()))
        for found in DEFINITION.finditer(markdown)
    ]


def uses(term: str, markdown: str) -> bool:
    """Whether the prose says `term`: as whole words, in either case, also in a plural with s or across a hyphen."""
    pattern = r"[\s-]+".join(re.escape(word) for word in re.split(r"[\s-]+", term))
    return re.search(rf"(?<!\w){pattern}s?(?!\w)", words(markdown), re.IGNORECASE) is not None


def anchor(heading: str) -> str:
    """The fragment that leads to a heading of a notebook, as JupyterLab makes it (its `createHeaderId`)."""
    return heading.replace(" ", "-")


def _flat(markdown: str) -> Iterator[Token]:
    for _, token in _inlines(markdown):
        yield from token.children if token.type == "inline" else [token]


def _tags(html: str, name: str) -> list[dict[str, str | None]]:
    """The attributes of each `<name …>`."""
    found: list[dict[str, str | None]] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            if tag == name:
                found.append(dict(attributes))

    Parser().feed(html)
    return found
