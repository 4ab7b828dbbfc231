"""Controls above a picture, and predictions recorded before the answer is seen."""

from __future__ import annotations

import base64
import html
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import log10
from typing import Any

from IPython.display import display
from matplotlib.figure import Figure

from course_lib import figures

LETTERS = "ABCD"
_choices: dict[str, str] = {}


@dataclass(frozen=True)
class Slider:
    """A slider from ``low`` to ``high``; with ``log`` its positions are spaced by powers of ten."""

    low: float
    high: float
    step: float | None = None
    log: bool = False
    label: str | None = None


@dataclass(frozen=True)
class Choice:
    """A menu of ``options``."""

    options: tuple[Any, ...]
    label: str | None = None


@dataclass(frozen=True)
class Switch:
    """A box to tick."""

    label: str | None = None


def explore(draw: Callable[..., tuple[Figure, str]], **controls: Any) -> None:
    """Show controls above one picture, and redraw that picture in place at each change.

    Without a running kernel the stored notebook shows the picture at the starting values.

    Args:
        draw: takes one keyword argument for each control and returns ``(figure, alt)``. It may return the same figure
            each time, with its artists updated, which is faster than a new one. The defaults of its arguments are the
            starting values.
        **controls: for each argument of ``draw`` a :class:`Slider`, :class:`Choice` or :class:`Switch`; or, in short,
            ``(low, high)`` or ``(low, high, step)`` for a slider, a list for a menu, True or False for a switch.

    Raises:
        TypeError: a control of another kind.
    """
    import ipywidgets as widgets

    parameters = inspect.signature(draw).parameters
    inputs = {name: _widget(widgets, name, spec, _default(parameters, name)) for name, spec in controls.items()}
    picture = widgets.HTML()
    laid_out: set[Figure] = set()

    def values() -> dict[str, Any]:
        return {name: widget.value for name, widget in inputs.items()}

    def redraw(_: Any = None) -> None:
        try:
            fig, alt = draw(**values())
            if fig in laid_out:
                fig.set_layout_engine("none")  # the same figure again: its layout is done, and doing it is slow
            laid_out.clear()
            laid_out.add(fig)
            picture.value = _figure_html(figures.moving_png(fig), figures.check_alt(alt))
        except Exception as error:  # an error in a callback would otherwise vanish into the log
            picture.value = (
                f"<pre>This setting cannot be drawn. {html.escape(f'{type(error).__name__}: {error}')}</pre>"
            )

    fig, alt = draw(**values())
    data, metadata = figures.png_bundle(fig, figures.check_alt(alt))
    redraw()
    for widget in inputs.values():
        widget.observe(redraw, names="value")
    _display_widget(widgets.VBox([*inputs.values(), picture]), data, metadata)
    # The stored picture's description. Where a kernel runs, the caption says it, so the live side of this is nothing.
    nothing = widgets.HTML(layout=widgets.Layout(display="none"))
    _display_widget(nothing, {"text/html": figures.description_html(alt)}, {})


def predict(question_id: str) -> None:
    """Ask a question of the course's bank and record the choice, to be quoted by :func:`reveal`.

    Raises:
        KeyError: no such question.
    """
    import ipywidgets as widgets

    question = questions()[question_id]
    radio = widgets.RadioButtons(
        options=[(f"{letter}. {option['text']}", letter) for letter, option in _lettered(question)],
        value=_choices.get(question_id),
        layout=widgets.Layout(width="max-content"),
    )
    note = widgets.HTML()

    def record(_: Any = None) -> None:
        if radio.value is not None:
            _choices[question_id] = radio.value
            note.value = f"Your prediction: <b>{radio.value}</b>. You can change it until you run the answer."

    radio.observe(record, names="value")
    record()
    ask = widgets.HTML(f"<b>Predict.</b> {html.escape(question['question'])}")
    # Written out, since JupyterLab's sanitizer turns <ol type="A"> into 1, 2, 3.
    listed = "<br>".join(f"{letter}. {html.escape(option['text'])}" for letter, option in _lettered(question))
    data = {
        "text/html": f"<p><b>Predict.</b> {html.escape(question['question'])}</p><p>{listed}</p>",
        "text/plain": "\n".join(
            [question["question"], *(f"{letter}. {option['text']}" for letter, option in _lettered(question))]
        ),
    }
    _display_widget(widgets.VBox([ask, radio, note]), data, {})


def reveal(question_id: str) -> None:
    """Quote the recorded prediction beside the right answer, with what each of the two says about the matter.

    Raises:
        KeyError: no such question.
    """
    question = questions()[question_id]
    options = dict(_lettered(question))
    chosen, right = _choices.get(question_id), question["right"]
    if chosen is None:
        lines = ["You recorded no prediction."]
    elif chosen == right:
        lines = [f"You predicted **{chosen}**, and that is right."]
    else:
        lines = [f"You predicted {_quoted(chosen, options[chosen])}"]
    lines.append(f"The answer is {_quoted(right, options[right])}")
    if chosen != right:
        lines.append(question["next"])
    text = "\n\n".join(lines)
    display({"text/markdown": text, "text/plain": text.replace("**", "")}, raw=True)


@cache
def questions() -> dict[str, dict[str, Any]]:
    """The course's question bank, by id."""
    text = resources.files("course_lib").joinpath("data/questions.json").read_text(encoding="utf-8")
    return {question["id"]: question for question in json.loads(text)}


def _lettered(question: dict[str, Any]) -> list[tuple[str, dict[str, str]]]:
    return list(zip(LETTERS, question["options"], strict=True))


def _quoted(letter: str, option: dict[str, str]) -> str:
    """An option in bold, as a sentence, and what it says about the matter."""
    stop = "" if option["text"].endswith((".", "!", "?")) else "."
    return f"**{letter}. {option['text']}{stop}** {option['belief']}"


def _widget(widgets: Any, name: str, spec: Any, start: Any) -> Any:
    """The ipywidgets control for one argument of ``draw``."""
    if isinstance(spec, tuple):
        spec = Slider(*spec)
    elif isinstance(spec, list):
        spec = Choice(tuple(spec))
    elif isinstance(spec, bool):
        start = spec if start is None else start
        spec = Switch()
    look = {
        "description": getattr(spec, "label", None) or name.replace("_", " "),
        "style": {"description_width": "14em"},
        "layout": widgets.Layout(width="36em", max_width="100%"),
    }
    if isinstance(spec, Switch):
        look["style"] = {"description_width": "initial"}
        return widgets.Checkbox(value=bool(start), indent=False, **look)
    if isinstance(spec, Choice):
        return widgets.Dropdown(options=spec.options, value=spec.options[0] if start is None else start, **look)
    if not isinstance(spec, Slider):
        raise TypeError(
            f"The control for {name!r} must be a Slider, Choice or Switch, a (low, high) pair, a list, or True or "
            f"False; it was {spec!r}."
        )
    start = spec.low if start is None else start
    if spec.log:
        return widgets.FloatLogSlider(
            value=start, min=log10(spec.low), max=log10(spec.high), step=spec.step or 0.05, readout_format=".3g", **look
        )
    if all(isinstance(x, int) for x in (spec.low, spec.high, spec.step or 1)):
        return widgets.IntSlider(value=start, min=spec.low, max=spec.high, step=spec.step or 1, **look)
    step = spec.step or (spec.high - spec.low) / 100
    return widgets.FloatSlider(value=start, min=spec.low, max=spec.high, step=step, readout_format=".3g", **look)


def _default(parameters: Any, name: str) -> Any:
    """The default of one argument, or None; an argument taken through ``**kwargs`` has none."""
    parameter = parameters.get(name)
    return None if parameter is None or parameter.default is parameter.empty else parameter.default


def _figure_html(png: bytes, alt: str) -> str:
    source = base64.b64encode(png).decode("ascii")
    alt = html.escape(alt, quote=True)
    return (
        f'<figure style="margin: 0"><img alt="{alt}" src="data:image/png;base64,{source}" style="max-width: 100%">'
        '<figcaption style="font-size: 90%; line-height: 1.4; opacity: 0.8; max-width: 50em">'
        f"{alt}</figcaption></figure>"
    )


def _display_widget(widget: Any, data: dict[str, str], metadata: dict[str, Any]) -> None:
    """Display a live widget together with what stands for it where no kernel runs."""
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    display({**data, "application/vnd.jupyter.widget-view+json": view}, metadata=metadata, raw=True)
