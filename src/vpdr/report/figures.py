"""What all figures share: a style, a canvas without global state, and their way into the page."""

import contextlib
import functools
import io
import re
import warnings
from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any, ParamSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure

Arguments = ParamSpec("Arguments")
INK, FONT = "#333333", "DejaVu Sans"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    "svg.hashsalt": "vpdr",  # the same figure has the same ids
    "font.family": FONT,  # comes with matplotlib, and is wider than what a reader may have instead
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "text.color": INK,
    "text.parse_math": False,  # a name may contain a dollar sign
    "xtick.color": INK,
    "ytick.color": INK,
}


def drawn(draw: Callable[Arguments, "Figure"]) -> Callable[Arguments, "Figure"]:
    """Draw in the house's style, whatever the user's own settings are."""

    @functools.wraps(draw)
    def styled(*args: Arguments.args, **named: Arguments.kwargs) -> "Figure":
        with _style():
            return draw(*args, **named)

    return styled


@contextlib.contextmanager
def _style() -> Iterator[None]:
    """Our settings on top of matplotlib's defaults, for as long as it takes."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the reader's fonts have it
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def canvas(columns: int, rows: int, size: tuple[float, float], **sharing: Any) -> tuple["Figure", Any]:
    """A figure that no window knows of, and its axes as a grid."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **sharing)


def whole_numbers(axes: "Axes") -> None:
    """A few ticks at whole rounds."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=1))


def inline_svg(figure: "Figure", name: str, description: str) -> str:
    """The figure as an `<svg>` element; `name` keeps its ids apart from those of other figures."""
    buffer = io.StringIO()
    with _style():
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style).*?</\1>|<!--.*?-->|<defs>\s*</defs>", "", text, flags=re.DOTALL)
    text = re.sub(r'( id="|url\(#|xlink:href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r"\n\s*", "\n", text).replace(f"'{FONT}'", f"'{FONT}', Verdana, sans-serif")
    joins = "stroke-linejoin: round; stroke-linecap: butt"
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(description)}" style="{joins}"', 1)
