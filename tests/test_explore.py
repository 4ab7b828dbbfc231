import re

import ipywidgets
import pytest

from course_lib import explore, figures

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
QUESTION = {
    "id": "q",
    "question": "What is 2 < 3?",
    "options": [{"text": f"option {x}", "belief": f"belief {x}."} for x in "abcd"],
    "right": "C",
    "next": "Look again.",
}


class Shown(list):
    """What `display` was given, as (data, metadata) pairs, and the live widgets among it by their ids."""

    widgets: dict[str, ipywidgets.Widget]


@pytest.fixture
def shown(monkeypatch):
    calls = Shown()
    calls.widgets = {}

    def keep(widget, data, metadata, original=explore._display_widget):
        calls.widgets[widget.model_id] = widget
        original(widget, data, metadata)

    monkeypatch.setattr(explore, "display", lambda data, metadata=None, raw=False: calls.append((data, metadata)))
    monkeypatch.setattr(explore, "_display_widget", keep)
    return calls


@pytest.fixture
def bank(monkeypatch):
    monkeypatch.setattr(explore, "questions", lambda: {"q": QUESTION})
    monkeypatch.setattr(explore, "_choices", {})


def live(shown) -> ipywidgets.VBox:
    """The widget with the controls, of the last call."""
    views = [shown.widgets[data[WIDGET_VIEW]["model_id"]] for data, _ in shown if WIDGET_VIEW in data]
    return [widget for widget in views if isinstance(widget, ipywidgets.VBox)][-1]


def draw(beta=0.5, size=10.0, kind="b", on=True, steps=3):
    fig, ax = figures.subplots(width=2, height=1)
    ax.plot([0, beta])
    return fig, f"beta {beta}, size {size:g}, kind {kind}, on {on}, steps {steps}"


def start(shown):
    return explore.explore(
        draw,
        beta=explore.Slider(0.0, 0.999, label="β, the decay"),
        size=explore.Slider(1, 1e4, log=True),
        kind=["a", "b"],
        on=False,
        steps=(1, 5),
    )


def test_controls_start_at_the_defaults_of_draw_and_carry_labels(shown):
    assert start(shown) is None
    beta, size, kind, on, steps, picture = live(shown).children
    assert [w.value for w in (beta, size, kind, on, steps)] == [0.5, 10.0, "b", True, 3]
    assert [w.description for w in (beta, size, kind, on, steps)] == ["β, the decay", "size", "kind", "on", "steps"]
    assert isinstance(steps, ipywidgets.IntSlider) and isinstance(size, ipywidgets.FloatLogSlider)
    assert isinstance(picture, ipywidgets.HTML)


def test_the_bundle_carries_the_static_picture_and_its_description(shown):
    start(shown)
    data, metadata = shown[0]
    assert data["text/plain"] == metadata["image/png"]["alt"] == "beta 0.5, size 10, kind b, on True, steps 3"
    assert data["image/png"].startswith("iVBOR")


def test_moving_a_control_changes_that_picture_and_its_description_and_adds_nothing(shown):
    start(shown)
    beta, *_, picture = box = live(shown).children
    before = picture.value
    beta.value = 0.9
    assert "beta 0.9" in re.search(r'<img alt="([^"]*)"', picture.value)[1]
    assert re.search(r"base64,([^\"]+)", picture.value)[1] != re.search(r"base64,([^\"]+)", before)[1]
    assert picture.value.count("<img") == 1
    assert len(shown) == 2 and live(shown).children == box


def test_the_stored_description_stands_below_and_gives_way_where_a_kernel_runs(shown):
    start(shown)
    data, _ = shown[1]
    assert "beta 0.5, size 10, kind b" in data["text/html"] and set(data) == {"text/html", WIDGET_VIEW}
    assert shown.widgets[data[WIDGET_VIEW]["model_id"]].layout.display == "none"


def test_a_setting_that_cannot_be_drawn_says_so_and_the_next_one_works(shown):
    def fragile(beta=1.0):
        if beta == 0:
            raise ZeroDivisionError("beta <0>")
        return draw(beta)

    explore.explore(fragile, beta=(0.0, 1.0))
    beta, picture = live(shown).children
    beta.value = 0.0
    assert "cannot be drawn" in picture.value and "&lt;0&gt;" in picture.value
    beta.value = 0.5
    assert "beta 0.5" in picture.value


def test_draw_may_return_the_same_figure_again(shown):
    fig, ax = figures.subplots(width=2, height=1)
    (line,) = ax.plot([0, 1])

    def redraw(top=1.0):
        line.set_ydata([0, top])
        return fig, f"top {top}"

    explore.explore(redraw, top=(0.0, 1.0))
    top, picture = live(shown).children
    first = picture.value
    top.value = 0.2
    second = picture.value
    top.value = 1.0
    third = picture.value
    assert len({first, second}) == 2 and 'alt="top 0.2"' in second and 'alt="top 1.0"' in third


def test_other_controls_are_refused(shown):
    with pytest.raises(TypeError, match="'beta' must be a Slider"):
        explore.explore(draw, beta="0 to 1")


def test_predict_records_the_choice_and_reveal_quotes_it(shown, bank):
    explore.predict("q")
    assert "option a" in shown[0][0]["text/html"] and "2 &lt; 3" in shown[0][0]["text/html"]
    assert "option c" in shown[0][0]["text/plain"]
    _, radio, note = live(shown).children
    assert radio.value is None and note.value == ""
    radio.value = "B"
    assert "<b>B</b>" in note.value
    explore.reveal("q")
    text = shown[-1][0]["text/plain"]
    assert text.startswith("You predicted B. option b. belief b.")
    assert "The answer is C. option c. belief c." in text and text.endswith("Look again.")


def test_reveal_of_a_right_prediction(shown, bank):
    explore.predict("q")
    live(shown).children[1].value = "C"
    explore.reveal("q")
    text = shown[-1][0]["text/plain"]
    assert text.startswith("You predicted C, and that is right.") and "Look again." not in text


def test_reveal_without_a_prediction(shown, bank):
    explore.reveal("q")
    assert shown[-1][0]["text/plain"].startswith("You recorded no prediction.")


def test_running_a_question_again_keeps_the_choice(shown, bank):
    explore.predict("q")
    live(shown).children[1].value = "A"
    explore.predict("q")
    assert live(shown).children[1].value == "A"
