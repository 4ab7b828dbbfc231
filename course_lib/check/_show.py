"""Verdicts, hints and progress as a learner sees them: a box in a notebook, plain lines elsewhere."""

from __future__ import annotations

import html
import re
import sys
from typing import Any

from IPython import get_ipython
from IPython.display import display

SYMBOLS = {"not attempted": "○", "incorrect": "✗", "correct": "✓"}
TITLES = {"not attempted": "Not attempted yet", "incorrect": "Not right yet", "correct": "Right"}
# Told apart by the symbol and the word; the colour, from Okabe and Ito's palette, comes on top.
COLORS = {"not attempted": "#999999", "incorrect": "#D55E00", "correct": "#009E73"}
STRESSED = re.compile(r"(?<![\w*])\*([^\s*](?:[^*]*[^\s*])?)\*(?![\w*])")

# The last outcome of each task in this kernel.
outcomes: dict[str, str] = {}
# The tasks whose function was stopped when it was last checked.
endless: set[str] = set()


def verdict(name: str, found: Any) -> None:
    """Show a verdict. Its output's metadata tell a teacher's report what was recognised."""
    title = f"{SYMBOLS[found.outcome]} {TITLES[found.outcome]}"
    rows = [(label, text) for label, text in _table(found) if text]
    lines = [f"{title} · {name}", *(f"  {label}: {text}" for label, text in rows)]
    body = f"<b>{title}</b> · <code>{html.escape(name)}</code>"
    if rows:
        body += '<table style="margin: 0.4em 0; text-align: left">'
        for label, text in rows:
            body += (
                f'<tr><td style="text-align: left; white-space: nowrap; vertical-align: top">{label}</td>'
                f'<td style="text-align: left"><code>{html.escape(text)}</code></td></tr>'
            )
        body += "</table>"
    if found.says:
        lines.append(f"  {plain(found.says)}")
        body += f'<div style="margin-top: 0.3em">{_inline(found.says)}</div>'
    if found.belief:
        lines.append(f"  Known as: {found.belief}")
        body += f'<div style="opacity: 0.75; font-size: 90%">Known as: {html.escape(found.belief)}</div>'
    metadata = {"course_check": {"task": name, "outcome": found.outcome, "belief": found.belief}}
    _display(_box(body, COLORS[found.outcome]), "\n".join(lines), metadata)


def hint(name: str, given: list[str], total: int) -> None:
    """Show the hints given so far."""
    if not given:
        return _display(_box(f"There are no hints for <code>{name}</code>."), f"There are no hints for {name}.")
    steps = [f"Hint {number} of {total}: {text}" for number, text in enumerate(given, start=1)]
    more = "" if len(given) < total else f"That was the last one; check.{name}.solution() shows an answer."
    body = "".join(
        f'<div style="margin: 0.2em 0">{_inline(step)}</div>' for step in [*steps, *([more] if more else [])]
    )
    _display(_box(body), "\n".join([*(plain(step) for step in steps), *([more] if more else [])]))


def solution(name: str, answer: dict[str, str] | None) -> None:
    """Show an answer and the reason for it."""
    if answer is None:
        text = "This is a class edition, which comes without the answers; your teacher has them."
        return _display(_box(text), text)
    markdown = f"```python\n{answer['code']}\n```\n\n{answer['why']}"
    _display(None, f"{answer['code']}\n\n{answer['why']}", {}, markdown)


def progress(names: tuple[str, ...]) -> None:
    """One line: how many of these tasks are right, and which are open."""
    now = [(name, outcomes.get(name, "not attempted")) for name in names]
    right = sum(outcome == "correct" for _, outcome in now)
    marks = "   ".join(f"{SYMBOLS[outcome]} {name}" for name, outcome in now)
    end = "All right: go on." if right == len(names) else "○ not attempted, ✗ not right yet, ✓ right"
    text = f"{right} of {len(names)} tasks right.   {marks}"
    _display(_box(f"<b>{right} of {len(names)} tasks right.</b> {html.escape(marks)}<br>{end}"), f"{text}\n{end}")


def note(text: str) -> None:
    """Show a sentence."""
    _display(_box(_inline(text)), plain(text))


def _table(found: Any) -> list[tuple[str, str]]:
    return [("Input", found.given), ("Came out", found.came), ("Expected", found.expected)]


def _inline(text: str) -> str:
    """A sentence as HTML: what stands in backquotes becomes code, what stands between stars is stressed."""
    parts = html.escape(text, quote=False).split("`")
    parts[::2] = [STRESSED.sub(r"<em>\1</em>", part) for part in parts[::2]]
    parts[1::2] = [f"<code>{part}</code>" for part in parts[1::2]]
    return "".join(parts)


def plain(text: str) -> str:
    """A sentence without backquotes and stars."""
    parts = text.split("`")
    parts[::2] = [STRESSED.sub(r"\1", part) for part in parts[::2]]
    return "".join(parts)


def _box(body: str, color: str = "#999999") -> str:
    return f'<div style="border-left: 0.35em solid {color}; padding: 0.3em 0.8em; max-width: 56em">{body}</div>'


def _display(box: str | None, text: str, metadata: dict[str, Any] | None = None, markdown: str = "") -> None:
    if get_ipython() is None:
        shown = getattr(sys.stdout, "encoding", None) or "utf-8"  # a terminal may lack the symbols
        return print(text.encode(shown, "replace").decode(shown))
    data = {
        "text/plain": text,
        **({"text/html": box} if box else {}),
        **({"text/markdown": markdown} if markdown else {}),
    }
    display(data, metadata=metadata or {}, raw=True)
