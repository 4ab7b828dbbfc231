"""One style for all figures, heatmaps that can be redrawn quickly, and pictures that carry a description.

Figures here are plain ``matplotlib.figure.Figure`` objects, made without pyplot: nothing is left open, and no cell
prints a stray ``<Figure size …>``.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable

import matplotlib
import numpy as np
from IPython.display import display
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import CenteredNorm, LogNorm, Normalize
from matplotlib.figure import Figure
from PIL import Image

# Okabe & Ito's palette, told apart with every common kind of colour blindness (jfly.uni-koeln.de/color). Its vermilion
# and its purple are darker here, so that white words can be read on them, and they on white. tests/test_palette.py
# measures both.
COLORS = {
    "weights": "#999999",
    "gradients": "#56B4E9",
    "state": "#C45500",
    "activations": "#F0E442",
    "adamw": "#C45500",
    "adafactor": "#0072B2",
    "adam8bit": "#AD5892",
    "sgd": "#999999",
    "row": "#009E73",
    "col": "#E69F00",
    "ink": "#222222",
    "muted": "#6B6B6B",
}

SEQUENTIAL = "viridis"
DIVERGING = "RdBu_r"

matplotlib.rcParams.update(
    {
        "figure.facecolor": "white",
        "axes.facecolor": "white",
        "savefig.facecolor": "white",
        "font.size": 11,
        "axes.titlesize": 12,
        "axes.titlelocation": "left",
        "axes.labelsize": 11,
        "xtick.labelsize": 10,
        "ytick.labelsize": 10,
        "legend.fontsize": 10,
        "legend.frameon": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.color": COLORS["ink"],
        "axes.labelcolor": COLORS["ink"],
        "axes.edgecolor": COLORS["muted"],
        "svg.hashsalt": "course",
    }
)

# Pixels on the page for one inch of figure; stored pictures have 1.5 times as many, to be sharp on dense screens.
PAGE_DPI = 100
STORED_DPI = 150

STILL = "_course_still"  # the attribute where a figure keeps the pixels of what does not move, and the artists that do


def subplots(nrows: int = 1, ncols: int = 1, width: float = 8.0, height: float = 3.5, **kwargs):
    """A figure with axes, like ``pyplot.subplots`` but kept out of pyplot's list of open figures.

    Args:
        nrows, ncols: grid of axes.
        width, height: inches; 8 inches fill the usual width of a notebook.
        **kwargs: as for ``Figure.subplots`` (``sharex``, ``width_ratios``, …).

    Returns:
        ``(figure, axes)``, axes as from ``pyplot.subplots``.
    """
    fig = Figure(figsize=(width, height), layout="constrained")
    return fig, fig.subplots(nrows, ncols, **kwargs)


def show(fig: Figure, alt: str) -> None:
    """Display ``fig`` as one PNG, with ``alt`` as its description for those who cannot see it.

    JupyterLab shows no alternative text on pictures in outputs, so the description also stands, folded, below.

    Raises:
        ValueError: ``alt`` is empty.
    """
    alt = check_alt(alt)
    data, metadata = png_bundle(fig, alt)
    display(data, metadata=metadata, raw=True)
    display({"text/html": description_html(alt)}, raw=True)


def png_bundle(fig: Figure, alt: str) -> tuple[dict[str, str], dict[str, dict[str, object]]]:
    """The picture of ``fig`` as data and metadata of a notebook output."""
    width, height = fig.get_size_inches()
    data = {"image/png": base64.b64encode(png(fig)).decode("ascii"), "text/plain": alt}
    size = {"alt": alt, "width": round(width * PAGE_DPI), "height": round(height * PAGE_DPI)}
    return data, {"image/png": size}


def png(fig: Figure, dpi: float = STORED_DPI) -> bytes:
    """``fig`` as the bytes of a PNG file."""
    buffer = io.BytesIO()
    # Light compression: a moving picture is written far more often than it is stored.
    fig.savefig(buffer, format="png", dpi=dpi, pil_kwargs={"compress_level": 3}, metadata={"Software": None})
    return buffer.getvalue()


def moving_png(fig: Figure) -> bytes:
    """``fig`` at ``PAGE_DPI`` as the bytes of a PNG file, for a picture that follows a control.

    The pixels are those of :func:`png`, sooner: ``savefig`` draws everything twice, the first time only for the layout.
    If artists are marked by ``set_animated(True)``, all others are drawn once and kept: they must not change.
    """
    canvas = fig.canvas if isinstance(fig.canvas, FigureCanvasAgg) else FigureCanvasAgg(fig)
    fig.dpi = PAGE_DPI
    if hasattr(fig, STILL):
        pixels, moving = getattr(fig, STILL)
        canvas.restore_region(pixels)
    else:
        canvas.draw()  # leaves out what is animated
        moving = sorted(fig.findobj(Artist.get_animated), key=Artist.get_zorder)
        if moving:
            setattr(fig, STILL, (canvas.copy_from_bbox(fig.bbox), moving))
    for artist in moving:
        artist.axes.draw_artist(artist)
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(canvas.buffer_rgba())).save(buffer, "png", compress_level=1)
    return buffer.getvalue()


def description_html(alt: str) -> str:
    """The folded description that stands below a picture; as the title, screen readers hear it while it is folded."""
    alt = html.escape(alt)
    return (
        f'<details style="font-size: 90%; opacity: 0.8"><summary title="{alt}">Picture description</summary>'
        f"{alt}</details>"
    )


def check_alt(alt: str) -> str:
    """``alt`` on one line.

    Raises:
        ValueError: it is empty.
    """
    alt = " ".join(alt.split())
    if not alt:
        raise ValueError("A picture needs alt text: say in words what it shows, with its numbers.")
    return alt


class Heatmap:
    """A heatmap on ``ax`` whose numbers can be replaced by :meth:`update` without drawing it anew."""

    def __init__(
        self,
        ax: Axes,
        matrix,
        title: str,
        *,
        norm: Normalize,
        cmap: str,
        numbers: Callable[[float], str] | None,
        colorbar: str | None,
    ) -> None:
        matrix = as_array(matrix)
        self.ax = ax
        self.image = ax.imshow(matrix, norm=norm, cmap=cmap, aspect="auto", interpolation="nearest")
        ax.set_title(title)
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0)
        if min(matrix.shape) and max(matrix.shape) <= 12:
            ax.set_xticks(range(matrix.shape[1]))
            ax.set_yticks(range(matrix.shape[0]))
        if colorbar is not None:
            bar = ax.figure.colorbar(self.image, ax=ax, label=colorbar, fraction=0.05, pad=0.03)
            bar.outline.set_visible(False)
        self.numbers = numbers
        self.texts = []
        if numbers is not None:
            self.texts = [ax.text(j, i, "", ha="center", va="center") for i, j in np.ndindex(matrix.shape)]
        self.update(matrix)

    def update(self, matrix, title: str | None = None) -> None:
        """Show other numbers, of the same shape, on the same colour scale."""
        matrix = as_array(matrix)
        self.image.set_data(matrix)
        if title is not None:
            self.ax.set_title(title)
        if not self.texts:
            return
        light = luminance(self.image.cmap(self.image.norm(matrix))[..., :3])
        for text, value, cell in zip(self.texts, matrix.flat, light.flat, strict=True):
            text.set_text(self.numbers(value))
            # Where black and white have the same contrast, (1 + 0.05) / (L + 0.05) = (L + 0.05) / (0 + 0.05).
            text.set_color("black" if cell > 0.179 else "white")


def heatmap(
    ax: Axes,
    matrix,
    title: str,
    *,
    scale: str = "linear",
    vmin: float | None = None,
    vmax: float | None = None,
    numbers: bool | str | None = None,
    colorbar: str | None = "",
) -> Heatmap:
    """Draw ``matrix`` on ``ax`` as a heatmap.

    Args:
        ax: where to draw.
        matrix: shape ``[n, m]``, tensor or array.
        title: what is seen.
        scale: ``"linear"``, ``"log"``, or ``"diverging"`` (centred at zero, for errors and log ratios).
        vmin, vmax: ends of the colour scale; give the same to heatmaps that are to be compared. For ``"diverging"``
            ``vmax`` is the distance from zero to either end.
        numbers: write the numbers into the cells: True, False, or a format such as ``".2f"``. By default they are
            written when the matrix is at most 8 × 8.
        colorbar: its label; None for no colour bar.

    Returns:
        The :class:`Heatmap`, whose ``update(matrix)`` redraws it quickly.
    """
    matrix = as_array(matrix)
    if scale == "log":
        norm: Normalize = LogNorm(vmin, vmax)
    elif scale == "diverging":
        norm = CenteredNorm(0.0, vmax)
    elif scale == "linear":
        norm = Normalize(vmin, vmax)
    else:
        raise ValueError(f"scale is 'linear', 'log' or 'diverging'; it was {scale!r}.")
    norm.autoscale_None(matrix)
    if numbers is None:
        numbers = max(matrix.shape) <= 8
    spec = numbers if isinstance(numbers, str) else ".3g"
    return Heatmap(
        ax,
        matrix,
        title,
        norm=norm,
        cmap=DIVERGING if scale == "diverging" else SEQUENTIAL,
        numbers=(lambda value: format(value, spec)) if numbers else None,
        colorbar=colorbar,
    )


def luminance(rgb) -> np.ndarray:
    """Relative luminance, from 0 for black to 1 for white (WCAG 2.2, "relative luminance").

    Args:
        rgb: sRGB colours from 0 to 1, shape ``[..., 3]``.

    Returns:
        Shape ``[...]``.
    """
    rgb = np.asarray(rgb)
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def as_array(values) -> np.ndarray:
    """Numbers as an array, from a tensor (of any dtype and device) or anything array-like."""
    if hasattr(values, "detach"):
        values = values.detach().float().cpu().numpy()
    return np.asarray(values)
