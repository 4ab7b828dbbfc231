"""Every relative link of README and of the notebooks leads somewhere, and every picture has a description."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import notebook
import prose
from course import ROOT

FOLDERS = ("notebooks", "exercises", "solutions")
PAGES = sorted(
    path
    for pattern in ("*.md", "exercises/*.md", "benchmarks/**/*.md", *(f"{name}/*.ipynb" for name in FOLDERS))
    for path in ROOT.glob(pattern)
)


def markdown(path: Path) -> list[str]:
    if path.suffix == ".md":
        return [path.read_text(encoding="utf-8")]
    return [cell.source for cell in notebook.read(path).cells if cell.cell_type == "markdown"]


def anchors(path: Path) -> set[str]:
    """The fragments that lead to a heading: in a notebook as JupyterLab makes them, in a .md file as GitHub does."""
    texts = [heading.text for source in markdown(path) for heading in prose.headings(source)]
    if path.suffix == ".md":
        return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}
    return {prose.anchor(text) for text in texts}


def dead_links(path: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    dead = []
    for link in (unquote(link) for source in markdown(path) for link in prose.links(source)):
        parts = urlsplit(link)
        if parts.scheme in ("http", "https", "mailto"):
            continue
        target = path.parent / parts.path if parts.path else path
        if parts.scheme or parts.path.startswith("/") or "\\" in link or not target.exists():
            dead.append(link)
        elif parts.fragment and parts.fragment not in anchors(target):
            dead.append(link)
    return dead


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_relative_links_resolve(path):
    assert dead_links(path) == []


def test_dead_links_are_found(tmp_path):
    (tmp_path / "b.md").write_text("# A *first* `code`, heading!\n", encoding="utf-8")
    page = notebook.assemble([notebook.new_markdown_cell("# Top\n\n## Two Words of [λ](#x)")])
    (tmp_path / "c.ipynb").write_text(notebook.text(page), encoding="utf-8")
    good = ["b.md", "b.md#a-first-code-heading", "c.ipynb#Two-Words-of-λ", "c.ipynb#Two-Words-of-%CE%BB", "#here"]
    dead = ["none.md", "b.md#A-first", "c.ipynb#two-words-of-λ", "#there", "/b.md", "C:/b.md", "..\\b.md"]
    links = [*good, "https://example.org/b.md", *dead]
    (tmp_path / "a.md").write_text("# Here\n\n" + "\n".join(f"[x]({x})" for x in links), encoding="utf-8")
    assert dead_links(tmp_path / "a.md") == dead


def test_every_picture_is_shown_with_alt_text():
    shown = {ROOT / picture.source: picture.alt for picture in prose.pictures((ROOT / "README.md").read_text("utf-8"))}
    assert all(path.exists() for path in shown), "README shows a picture that is not there"
    assert all(alt.strip() for alt in shown.values()), "README shows a picture without alt text"
    assert set((ROOT / "images").glob("*")) <= set(shown), "images/ has a picture that README does not show"
