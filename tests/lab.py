"""JupyterLab in a headless browser: started by README's command in a copy of the course, driven as a learner would."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse
from urllib.request import Request, urlopen

from playwright.sync_api import Browser, Locator, Page, sync_playwright

import execution
from course import ROOT

SCREENSHOTS = ROOT / "results" / "browser"
SAID = ("role", "name", "description", "value")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
WINDOW = {"width": 1280, "height": 1000}
# Seconds. On two idle cores the server is there in 5 and a lesson has run in 25; the rest is for a busy machine.
START_TIMEOUT, RUN_TIMEOUT = 90, 300
MOVE_TIMEOUT = 20
# What stands in the place of a control that does not show.
DEAD = re.compile("Error displaying widget|Loading widget")

IDLE = """() =>
  document.querySelector('.jp-NotebookPanel .jp-Notebook-ExecutionIndicator[data-status=idle]') &&
  ![...document.querySelectorAll('.jp-InputPrompt')].some(prompt => prompt.textContent.includes('*'))"""
# All have run, or one has failed, and those below it never will. (A folded cell has no number.)
DONE = f"""() => ({IDLE})() && (
  ![...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].some(prompt => prompt.textContent.includes('[ ]')) ||
  document.querySelector('.jp-Notebook [data-mime-type="application/vnd.jupyter.error"]'))"""
WATCH = """area => {
  const watched = { sources: [area.querySelector('img').src], times: [], pressed: 0 };
  window.watched = watched;
  document.addEventListener('keydown', () => { watched.pressed = performance.now(); }, true);
  new MutationObserver(async () => {
    const img = area.querySelector('img');
    if (!img || img.src === watched.sources.at(-1)) return;
    watched.sources.push(img.src);
    await img.decode();
    watched.times.push(performance.now() - watched.pressed);
  }).observe(area, { subtree: true, childList: true, attributes: true, attributeFilter: ['src'] });
}"""
PICTURES = """areas => areas.flatMap(area => [...area.querySelectorAll('img')].map(img => ({
  source: img.src,
  alt: img.alt,
  caption: img.closest('figure')?.querySelector('figcaption')?.textContent ?? '',
  loaded: img.complete && img.naturalWidth > 0,
  width: img.getBoundingClientRect().width,
  room: area.clientWidth,
})))"""


def missing() -> str:
    """Why there is no JupyterLab in a browser here; empty if there can be."""
    if shutil.which("make") is None:
        return "there is no make here, which starts JupyterLab"
    if executable() is None:
        return f"there is no browser here ({', '.join(BROWSERS)}); `apt-get install chromium` brings one on Debian"
    return ""


def executable() -> str | None:
    """Where the browser is."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


@dataclass
class Lab:
    """A running JupyterLab, and a browser to look at it."""

    folder: Path
    url: str
    token: str
    browser: Browser
    outside: list[str] = field(default_factory=list)
    """Addresses elsewhere that a page has asked for."""
    broken: list[str] = field(default_factory=list)
    """Errors of scripts in a page."""

    @contextmanager
    def open(self, path: str = "", dark: bool = False) -> Iterator[Notebook]:
        """Open a notebook, such as ``notebooks/00_start_here.ipynb``; its kernel is shut down at the end.

        Args:
            path: relative to ``work/``; empty for what JupyterLab opens by itself.
            dark: in the dark theme.
        """
        theme = "JupyterLab Dark" if dark else "JupyterLab Light"
        self._settings("themes", {"theme": theme, "adaptive-theme": False})
        page = self.browser.new_page(viewport=WINDOW)
        page.on("request", lambda request: self._note(request.url))
        page.on("pageerror", lambda error: self.broken.append(str(error)))
        page.set_default_timeout(1000 * START_TIMEOUT)
        try:
            page.goto(
                f"{self.url}lab/tree/{path}?reset&token={self.token}" if path else f"{self.url}?token={self.token}"
            )
            page.locator(".jp-Notebook .jp-Cell").first.wait_for()
            file = self.folder / "course" / "work" / unquote(urlparse(page.url).path.partition("/tree/")[2])
            cells = len(json.loads(file.read_text(encoding="utf-8"))["cells"])
            # JupyterLab puts the cells into the page bit by bit.
            page.wait_for_function(f"document.querySelectorAll('.jp-Notebook .jp-Cell').length === {cells}")
            self._wait_for_kernel(page)
            notebook = Notebook(page)
            notebook.wait_until_idle()
            yield notebook
        finally:
            page.close()
            for kernel in self.kernels():
                self._ask("DELETE", f"api/kernels/{kernel['id']}")

    def save(self, notebook: Notebook, name: str) -> None:
        """Save a lesson by the keyboard, and wait until its controls are in the file."""
        file = self.folder / "course" / "work" / "notebooks" / f"{name}.ipynb"
        notebook.page.keyboard.press("ControlOrMeta+S")
        for _ in range(10 * MOVE_TIMEOUT):
            if "widgets" in json.loads(file.read_text(encoding="utf-8") or "{}").get("metadata", {}):
                return
            notebook.page.wait_for_timeout(100)
        raise TimeoutError(f"{name} was not saved with its controls")

    def _note(self, url: str) -> None:
        if url.startswith(("http:", "https:", "ws:", "wss:")) and f"//{self.url.partition('//')[2]}" not in url:
            self.outside.append(url)

    def kernels(self) -> list[dict[str, Any]]:
        """What the server says about the kernels that run."""
        return json.loads(self._ask("GET", "api/kernels"))

    def _wait_for_kernel(self, page: Page) -> None:
        for _ in range(10 * START_TIMEOUT):
            known = self.kernels()
            if any(kernel["connections"] and kernel["execution_state"] == "idle" for kernel in known):
                return
            page.wait_for_timeout(100)
        raise TimeoutError(f"no kernel is ready for {page.url}: {known}")

    def _ask(self, method: str, path: str) -> bytes:
        headers = {"Authorization": f"token {self.token}"}
        with urlopen(Request(self.url + path, headers=headers, method=method), timeout=START_TIMEOUT) as answer:
            return answer.read()

    def _settings(self, name: str, values: dict[str, Any]) -> None:
        path = self.folder / "settings" / "@jupyterlab" / "apputils-extension" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values), encoding="utf-8")


@dataclass
class Notebook:
    """One notebook in a page of its own."""

    page: Page

    def run_all(self) -> None:
        """Clear what is stored, run every cell, both from the menu, and wait until the last one is done."""
        self._choose("Edit", "Clear Outputs of All Cells")
        self._choose("Run", "Run All Cells")
        self.page.wait_for_function(DONE, timeout=1000 * RUN_TIMEOUT)

    def _choose(self, menu: str, item: str) -> None:
        self.page.get_by_role("menuitem", name=menu, exact=True).click()
        self.page.get_by_role("menuitem", name=item, exact=True).click()

    def run(self, cell: Locator) -> None:
        """Run one cell by the keyboard."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait until no cell is running or waiting to run."""
        self.page.wait_for_function(IDLE, timeout=1000 * RUN_TIMEOUT)

    def code(self, index: int) -> Locator:
        """A code cell, counted from 0."""
        return self.page.locator(".jp-CodeCell").nth(index)

    def type(self, cell: Locator, text: str) -> None:
        """Replace what stands in a cell."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("ControlOrMeta+A")
        self.page.keyboard.insert_text(text)

    @property
    def outputs(self) -> Locator:
        """Everything that stands below code cells."""
        return self.page.locator(".jp-Notebook .jp-OutputArea-output")

    @property
    def pictures(self) -> list[dict[str, Any]]:
        """All pictures in outputs, from top to bottom: source, alt, caption, loaded, width, and the room it has."""
        return self.outputs.evaluate_all(PICTURES)

    @property
    def complaints(self) -> list[str]:
        """Errors, what was written to stderr, and controls that do not show."""
        kinds = [f'[data-mime-type="application/vnd.jupyter.{kind}"]' for kind in ("stderr", "error")]
        found = self.outputs.locator(", ".join(kinds)).all_text_contents()
        return found + self.outputs.filter(has_text=DEAD).all_text_contents()

    def control(self, label: str) -> Locator:
        """What a learner moves: the handle of a slider, a menu or a box, by its label."""
        row = self.page.locator(".jp-Notebook .widget-inline-hbox", has=self.page.get_by_text(label, exact=True))
        return row.locator("[role=slider], select, input[type=checkbox]")

    def watch(self, control: Locator) -> None:
        """Record from now on how the picture of this control changes."""
        control.locator("xpath=ancestor::*[contains(@class, 'jp-OutputArea-output')]").evaluate(WATCH)

    def press(self, control: Locator, *keys: str) -> float:
        """Press keys on a control and wait for its picture; milliseconds from the last key to the picture."""
        control.focus()
        before = self.page.evaluate("watched.times.length")
        for key in keys:
            self.page.keyboard.press(key)
        self.page.wait_for_function("before => watched.times.length > before", arg=before, timeout=1000 * MOVE_TIMEOUT)
        return self.page.evaluate("watched.times.at(-1)")

    def tabbed(self, control: Locator) -> tuple[int, list[str]]:
        """Go by Tab from the cell whose output holds a control through that output.

        Returns:
            How many things there can be moved or typed into, and the classes of those that got the focus.
        """
        cell = control.locator("xpath=ancestor::*[contains(@class, 'jp-CodeCell')]")
        inside = cell.locator(".jp-OutputArea-output").locator("[role=slider], .widget-readout, select, input")
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Escape")
        reached: list[str] = []
        for _ in range(40):
            self.page.keyboard.press("Tab")
            number = inside.evaluate_all("all => all.indexOf(document.activeElement)")
            if number == len(reached):
                reached.append(inside.nth(number).evaluate("one => one.className || one.tagName"))
            elif reached:
                break
        return inside.count(), reached

    def heard(self, selector: str) -> list[dict[str, Any]]:
        """What the browser tells a screen reader of everything in outputs that a CSS selector names.

        Returns:
            For each element role, name and, where it has them, description and value.
        """
        session = self.page.context.new_cdp_session(self.page)
        root = session.send("DOM.getDocument")["root"]["nodeId"]
        query = {"nodeId": root, "selector": f".jp-Notebook .jp-OutputArea-output :is({selector})"}
        heard = []
        for node in session.send("DOM.querySelectorAll", query)["nodeIds"]:
            session.send("DOM.scrollIntoViewIfNeeded", {"nodeId": node})  # what is far away is not in the tree
            self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            tree = session.send("Accessibility.getPartialAXTree", {"nodeId": node, "fetchRelatives": False})["nodes"]
            heard.append({key: value["value"] for key, value in tree[0].items() if key in SAID and "value" in value})
        session.detach()
        return heard

    def screenshot(self, name: str, at: Locator) -> None:
        """Keep a picture of the window, for people to look at, with a part of the notebook in it."""
        at.scroll_into_view_if_needed()
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


@contextmanager
def start(folder: Path) -> Iterator[Lab]:
    """Start JupyterLab by `make lab` on a copy of the course in `folder`, and a browser."""
    copy = folder / "course"
    for part in ("tools", "notebooks", "exercises"):  # the real thing: tools/ finds work/ by where it lies itself
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / "Makefile", copy / "Makefile")
    (copy / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    own = {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    own |= {f"JUPYTERLAB_{kind}_DIR": str(folder / kind.lower()) for kind in ("SETTINGS", "WORKSPACES")}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        flags = f"--no-browser --port={free.getsockname()[1]}"
    # --old-file: whatever the dates of the copied files, the environment stays as it is.
    command = ["make", "--old-file=.venv/learner", "lab", f"LAB_FLAGS={flags}"]
    with (folder / "log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(
            command,
            cwd=copy,
            env=execution.environment(folder) | own,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        known = _wait_for_server(server, folder)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
            lab = Lab(folder, known["url"], known["token"], browser)
            lab._settings("notification", {"fetchNews": "false", "checkForUpdates": False})
            try:
                yield lab
            finally:
                browser.close()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)


def _wait_for_server(server: subprocess.Popen, folder: Path) -> dict[str, Any]:
    """What JupyterLab writes down about itself once it listens: its address and token."""
    end = time.monotonic() + START_TIMEOUT
    while time.monotonic() < end and server.poll() is None:
        for path in (folder / "runtime").glob("jpserver-*.json"):
            if text := path.read_text(encoding="utf-8"):
                return json.loads(text)
        time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{(folder / 'log').read_text(encoding='utf-8')}")
