"""One page to print: what each optimizer keeps, what was measured, and how to choose."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from course_lib import comparison, memory, planner, tasks
from course_lib.comparison import Comparison
from course_lib.diagrams.seeds import LOOKS
from course_lib.figures import COLORS
from course_lib.lockstep import ADAMW, ADAMW_8BIT, GIVEN, RELATIVE

# A4 upright, in inches; all places are in inches from the upper left corner.
WIDTH, HEIGHT = 8.27, 11.69
MARGIN = 0.5
COLUMNS = (2.3, 3.7, 5.12, 6.5)  # where the column of each optimizer begins
LINE = 0.185  # from one line to the next
MIB = 2**20

# Said of each, in the order of the columns: what it keeps, and how to ask for it.
IN_WORDS = (
    "M and V:\n2 n m numbers",
    "their codes, and\na scale for 256",
    "means of V:\nn + m numbers",
    "the same",
)
IN_TRAINER = ("adamw_torch", "adamw_bnb_8bit", "adafactor", "(none: pass\noptimizers=…)")
IN_A_LOOP = ("torch.optim\nAdamW", "bitsandbytes\nAdamW8bit", "transformers\nAdafactor", "torch.optim\nAdafactor")

STEPS = (
    (
        "1  Add up",
        "Weights, gradients, state,\nactivations, room for a step.\nIt fits? Then keep what\nyou have tuned.",
    ),
    (
        "2  What is too much?",
        "Activations: smaller batches.\nWeights: freeze some.\n"
        "State: 8 bits keep a quarter,\nAdafactor next to nothing.",
    ),
    (
        "3  Compare fairly",
        "A rate for each, by the same\nsearch. Several seeds, equal\n"
        "rows. Mean, SD, interval.\n“No difference” is no proof.",
    ),
)


def draw(compared: Comparison | None = None) -> tuple[Figure, str]:
    """The cheat sheet.

    Args:
        compared: whose numbers are shown; by default the committed ones.

    Returns:
        The figure, of the size of A4 paper, and what it says in words.
    """
    compared = compared or comparison.load()
    fig = Figure(figsize=(WIDTH, HEIGHT))
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    ax.axis("off")
    ax.text(MARGIN, 0.62, "Which optimizer, when", fontsize=20, fontweight="bold", va="center")
    ax.text(MARGIN, 0.98, "Memory-efficient training with Adafactor, lesson 10", color=COLORS["muted"], va="center")
    kept, measured = _kept(compared), _measured(compared)
    y = _names(ax, 1.56)
    y = _table(ax, y, "What it keeps", kept)
    y = _table(ax, y, "What was measured", measured)
    y = _notes(ax, y + 0.02, _how(compared), COLORS["muted"])
    y = _table(ax, y + 0.1, "How to ask for it", (("Trainer, optim=", IN_TRAINER), ("in a loop", IN_A_LOOP)), mono=True)
    y = _way(ax, y + 0.2)
    _notes(ax, _heading(ax, y, "Keep in mind"), _mind(compared), COLORS["ink"])
    return fig, _describe(compared, kept, measured)


Rows = Sequence[tuple[str, Sequence[str]]]


def _kept(compared: Comparison) -> Rows:
    """Sizes, which depend on shapes alone."""
    one = (1024, 512)
    bits = 8 + 32 / 256
    few = f"{4 * planner.elements_per_parameter(one, 'adafactor'):.3g}"
    results = compared.results.values()
    return (
        ("for an n × m matrix", IN_WORDS),
        ("bytes per parameter,\n1,024 × 512", ("8", f"{2 * bits / 8:.3g}", few, few)),
        ("DistilBERT: state, MiB", [f"{result.memory.state / MIB:,.2f}" for result in results]),
        ("with weights, gradients", [f"{result.memory.total / MIB:,.1f}" for result in results]),
        ("at the peak of a step", [f"{result.memory.peak / MIB:,.1f}" for result in results]),
    )


def _measured(compared: Comparison) -> Rows:
    """What came out of training."""
    results = compared.results
    base = results[ADAMW].correct
    apart = {name: comparison.difference(result.correct, base) for name, result in results.items() if name != ADAMW}
    return (
        ("best rate of five", [f"{result.rate:g}" for result in results.values()]),
        ("accuracy, mean ± SD", [f"{_spread(result.accuracy, 3)}" for result in results.values()]),
        (
            f"points above {ADAMW},\n± 2 standard errors",
            [
                "" if name == ADAMW else "{:+.1f}\n({:+.1f} to {:+.1f})".format(*_points(apart[name])).replace("-", "−")
                for name in results
            ],
        ),
        ("time to train, ratio", [_spread(result.ratios, 2) for result in results.values()]),
        ("large step, ratio", [f"{result.memory.step_ratio:.2f}" for result in results.values()]),
    )


def _points(difference: comparison.Difference) -> tuple[float, float, float]:
    return (100 * difference.mean, *(100 * end for end in difference.interval))


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{comparison.mean(values):.{digits}f} ± {comparison.sd(values):.{digits}f}"


def _how(compared: Comparison) -> Sequence[str]:
    about, task = compared.about, compared.task
    return (
        f"Measured {about['date']} with torch {about['torch']}, transformers {about['transformers']}, bitsandbytes "
        f"{about['bitsandbytes']},\n{about['processor']}, one thread. "
        f"Accuracy: {len(compared.seeds)} seeds of a small model, {task['validation']} names to judge by.\n"
        "Memory and large step: DistilBERT in 32 bits, on a CPU. "
        f"Times are ratios to {ADAMW}'s. On a GPU\nboth differ: measure there.",
    )


def _mind(compared: Comparison) -> Sequence[str]:
    model = tasks.distilbert(device="meta")
    in_trainer = memory.predict_state_size(model, "adamw8bit_bitsandbytes", embeddings_in_32bit=True).mib
    conv = planner.elements_per_parameter((64, 32, 1, 1), "adafactor")
    small = compared.results[ADAMW_8BIT].memory.added / MIB
    return (
        "8-bit AdamW leaves tensors of fewer than 4,096 elements in 32 bits. Trainer does the same with\n"
        f"embeddings: {in_trainer:.1f} MiB for DistilBERT.",
        f"On a CPU its step unpacks whole tensors, which takes {small:,.0f} MiB of room for DistilBERT. No count of\n"
        "the state shows that.",
        f"Adafactor does not factor vectors, and keeps {conv:g} numbers per parameter of a 1 × 1 convolution.",
        "bf16=True leaves the state in 32 bits. Fewer bytes do not mean a faster step.",
        "A state is empty before the first step. Count it afterwards, and name the unit: MiB or MB.",
    )  # fmt: skip


def _words(ax: Axes, x: float, y: float, text: str, **look: object) -> None:
    """Text from ``y`` down, each line on its own baseline, so that lines of neighbors stand level."""
    for i, line in enumerate(text.split("\n")):
        ax.text(x, y + 0.12 + i * LINE, line, va="baseline", **{"fontsize": 10, **look})


def _names(ax: Axes, y: float) -> float:
    for x, name in zip(COLUMNS, (ADAMW, ADAMW_8BIT, GIVEN, RELATIVE), strict=True):
        color, *_, label = LOOKS[name]
        _words(ax, x, y - 2 * LINE, label, color=color, fontsize=11, fontweight="bold")
    return y + 0.08


def _heading(ax: Axes, y: float, words: str) -> float:
    ax.plot([MARGIN, WIDTH - MARGIN], [y, y], color=COLORS["ink"], linewidth=1)
    ax.text(MARGIN, y + 0.17, words, fontsize=12, fontweight="bold", va="center")
    return y + 0.34


def _table(ax: Axes, y: float, title: str, rows: Rows, mono: bool = False) -> float:
    y = _heading(ax, y, title)
    for label, cells in rows:
        _words(ax, MARGIN, y, label)
        for x, text in zip(COLUMNS, cells, strict=True):
            _words(ax, x, y, text, **({"fontfamily": "DejaVu Sans Mono"} if mono else {}))
        y += LINE * max(text.count("\n") + 1 for text in (label, *cells)) + 0.05
    return y + 0.05


def _notes(ax: Axes, y: float, lines: Sequence[str], color: str) -> float:
    for line in lines:
        _words(ax, MARGIN, y, line, color=color)
        y += LINE * (line.count("\n") + 1) + 0.03
    return y


def _way(ax: Axes, y: float) -> float:
    """The way to a choice: boxes from question to question."""
    y = _heading(ax, y, "A way to choose")
    wide = (WIDTH - 2 * MARGIN - 2 * 0.25) / 3
    for i, (title, words) in enumerate(STEPS):
        x = MARGIN + i * (wide + 0.25)
        ax.add_patch(Rectangle((x, y), wide, 1.18, facecolor="#F4F4F4", edgecolor=COLORS["muted"]))
        ax.text(x + 0.09, y + 0.17, title, fontweight="bold", va="center")
        _words(ax, x + 0.09, y + 0.33, words)
        if i:
            ends = (x - 0.25, y + 0.59), (x, y + 0.59)
            ax.add_patch(
                FancyArrowPatch(*ends, arrowstyle="-|>", mutation_scale=12, color=COLORS["ink"], shrinkA=3, shrinkB=3)
            )
    return y + 1.38


def _describe(compared: Comparison, kept: Rows, measured: Rows) -> str:
    told = []
    for i, name in enumerate(compared.results):
        cells = (f"{label} {cells[i]}".replace("\n", " ") for label, cells in (*kept, *measured) if cells[i])
        told.append(f"{name}: {'; '.join(cells)}")
    return f"A page on which optimizer to take when. {'. '.join(told)}. Then a way to choose, in three steps."
