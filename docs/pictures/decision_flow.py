"""Draws decision_flow.svg for how-a-decision-flows.md: ``python docs/pictures/decision_flow.py``.

One column, so that it is legible on a phone. It has a background of its own, and colours for both
schemes of a browser, so that it is legible on any page.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple


class Step(NamedTuple):
    """What happens, where (a line for each file and function), and whether it is one call of the
    engine, which the compiled loop of `simulate` makes too.
    """

    what: str
    where: tuple[str, ...]
    shared: bool = False


ACT = (
    Step("The kind checks the context, once", ("core/arms.py ArmsKind.read",)),
    Step("The engine decides a row", ("reduction/running.py Running.decide",), True),
    Step("The row is open, and counts in z", ("reduction/running.py Running.open_rows",)),
    Step("The caller gets a view of the row", ("core/decision.py Decision.of",)),
)
UPDATE = (
    Step(
        "The ledger finds it; bytes are verified",
        ("agent/ledger.py Ledger.entry", "core/decision.py Batch.verify"),
    ),
    Step("The kind checks the feedback, once", ("core/arms.py ArmsKind.read_feedback",)),
    Step("The engine learns the row", ("reduction/running.py Running.learn",), True),
    Step("The ledger marks it as answered", ("agent/ledger.py Ledger.mark",)),
)

WIDTH, MARGIN, GAP = 360, 12, 10
LINE, HEAD = 17, 30  # heights: of a line of text, of a title

STYLE = """
svg { --ink: #1b1b1b; --soft: #4a4a4a; --paper: #ffffff; --line: #8a8a8a; --tint: #f1f1ee;
  --mark: #00508a; --shared: #dcebf7; }
@media (prefers-color-scheme: dark) { svg { --ink: #ececec; --soft: #c4c4c4; --paper: #161616;
  --line: #7a7a7a; --tint: #262626; --mark: #8cc8ff; --shared: #16324a; } }
text { fill: var(--ink); font: 14px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.title { font-weight: 700; font-size: 15px; }
.where { fill: var(--soft); font: 11.5px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono",
  monospace; }
.number { fill: var(--mark); font-weight: 700; }
.paper { fill: var(--paper); }
.step { fill: var(--tint); stroke: var(--line); }
.shared { fill: var(--shared); stroke: var(--mark); stroke-width: 2; }
.travel { fill: none; stroke: var(--line); stroke-dasharray: 5 4; }
.arrow { stroke: var(--soft); stroke-width: 1.5; fill: none; }
.tip { fill: var(--soft); }
"""


class Canvas:
    """Shapes from the top down."""

    def __init__(self) -> None:
        self.shapes: list[str] = []
        self.y = MARGIN

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        named = f' class="{kind}"' if kind else ""
        self.shapes.append(f'<text x="{x:g}" y="{y:g}"{named}>{escape(text)}</text>')

    def box(self, height: int, kind: str) -> None:
        self.shapes.append(
            f'<rect x="{MARGIN}" y="{self.y}" width="{WIDTH - 2 * MARGIN}" height="{height}" '
            f'rx="6" class="{kind}"/>'
        )

    def title(self, text: str) -> None:
        self.text(MARGIN, self.y + 18, text, "title")
        self.y += HEAD

    def arrow(self) -> None:
        """Down to whatever comes next."""
        x, end = WIDTH / 2, self.y + GAP
        self.shapes.append(f'<path d="M{x:g} {self.y}V{end - 4}" class="arrow"/>')
        self.shapes.append(
            f'<path d="M{x - 4:g} {end - 6}L{x:g} {end}L{x + 4:g} {end - 6}z" class="tip"/>'
        )
        self.y = end

    def step(self, number: int, step: Step) -> None:
        height = 14 + LINE * (1 + len(step.where))
        self.box(height, "shared" if step.shared else "step")
        self.text(MARGIN + 10, self.y + 21, str(number), "number")
        self.text(MARGIN + 28, self.y + 21, step.what)
        for place, where in enumerate(step.where):
            self.text(MARGIN + 28, self.y + 21 + LINE * (place + 1), where, "where")
        self.y += height

    def steps(self, first: int, steps: tuple[Step, ...]) -> None:
        for number, step in enumerate(steps, first):
            if number > first:
                self.arrow()
            self.step(number, step)


def drawn() -> str:
    """The picture as SVG."""
    canvas = Canvas()
    canvas.title("Agent.act(context)")
    canvas.steps(1, ACT)
    canvas.arrow()
    canvas.box(52, "travel")
    canvas.text(MARGIN + 28, canvas.y + 21, "The decision travels, also as bytes;")
    canvas.text(MARGIN + 28, canvas.y + 21 + LINE, "its answer may come late or never")
    canvas.y += 52
    canvas.arrow()
    canvas.y += 4
    canvas.title("Agent.update(decision, reward)")
    canvas.steps(len(ACT) + 1, UPDATE)
    canvas.y += 16
    canvas.shapes.append(
        f'<rect x="{MARGIN}" y="{canvas.y}" width="18" height="18" rx="4" class="shared"/>'
    )
    canvas.text(MARGIN + 28, canvas.y + 14, "one call of the compiled engine")
    height = canvas.y + 18 + MARGIN
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="name">',
            '<title id="name">How one decision flows from Agent.act to Agent.update</title>',
            f"<style>{STYLE}</style>",
            f'<rect width="{WIDTH}" height="{height}" rx="8" class="paper"/>',
            *canvas.shapes,
            "</svg>\n",
        )
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(drawn(), encoding="utf-8")
