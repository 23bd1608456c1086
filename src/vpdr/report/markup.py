"""HTML from plain functions: text is escaped unless it already is markup."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

VOID = {"meta", "br", "img"}


class Html(str):
    """Text that is markup, and therefore goes into the page as it is."""

    __slots__ = ()


def tag(name: str, /, *content: str, **attributes: str) -> Html:
    """One element; `class_` becomes `class`, `aria_label` becomes `aria-label`."""
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    opening = "".join(f' {key}="{escape(value)}"' for key, value in named.items())
    if name in VOID:
        return Html(f"<{name}{opening}>")
    return Html(f"<{name}{opening}>{joined(content)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """Pieces in a row, each escaped unless it is markup."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def bullets(items: Iterable[str]) -> Html:
    """An unordered list."""
    return tag("ul", *(tag("li", item) for item in items))


def pairs(content: Mapping[str, str]) -> Html:
    """Terms and what they stand for."""
    return tag("dl", *(joined((tag("dt", key), tag("dd", value))) for key, value in content.items()))


def grid(header: Sequence[str], rows: Iterable[Sequence[str]], class_: str = "numbers") -> Html:
    """A table that scrolls sideways on a narrow screen; the first column names the row."""
    head = tag("tr", *(cell if isinstance(cell, Html) else tag("th", cell, scope="col") for cell in header))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    table = tag("table", tag("thead", head), tag("tbody", *body), class_=class_)
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="table")


def section(identifier: str, title: str, *content: str) -> Html:
    """A part of the page that can be linked to."""
    return tag("section", tag("h2", title), *content, id=identifier)


def folded(summary: str, *content: str) -> Html:
    """Shown when asked for."""
    return tag("details", tag("summary", summary), *content)


def picture(svg: str, caption: str) -> Html:
    """A figure with what it shows."""
    return tag("figure", tag("div", Html(svg), class_="scroll"), tag("figcaption", caption))


def document(title: str, *content: str) -> str:
    """A whole page that asks nobody for anything."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(STYLE)),
    )
    body = tag("body", tag("main", *content))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #fff; color: #222; font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 1rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1rem 0 .5rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; border-bottom: 1px solid #ddd; padding-bottom: .2rem; }
h3 { font-size: 1.05rem; margin: 1.4rem 0 .3rem; }
p, li, dd { max-width: 46rem; }
nav a { margin-right: 1rem; }
a { color: #0060a0; }
.note { border-left: 4px solid #e69f00; background: #fff8e8; padding: .5rem .8rem; }
.small, figcaption { font-size: .875rem; color: #555; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; margin: .8rem 0; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #e4e4e4; text-align: left; vertical-align: top; }
thead th { border-bottom: 2px solid #999; vertical-align: bottom; min-width: 4.5rem; }
tbody th { font-weight: 600; white-space: nowrap; }
.numbers td { white-space: nowrap; font-variant-numeric: tabular-nums; }
abbr { text-decoration: underline dotted #999; cursor: help; }
figure { margin: 1.2rem 0; }
figure svg { height: auto; max-width: max(100%, 34rem); }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .2rem 1rem; margin: .6rem 0; }
dt { font-weight: 600; } dd { margin: 0; }
details { border: 1px solid #ddd; border-radius: 4px; padding: .3rem .7rem; margin: .4rem 0; }
summary { cursor: pointer; }
pre, code { font: .8125rem/1.45 ui-monospace, monospace; }
pre { overflow-x: auto; background: #f6f6f6; padding: .6rem; }
@media (max-width: 36rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; } }
@media print {
  main { max-width: none; padding: 0; } nav { display: none; }
  figure, tr { break-inside: avoid; } .scroll { overflow: visible; } .numbers { font-size: .6rem; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
"""
