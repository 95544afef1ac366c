"""Draws the rewards of runs: python3 curve.py OUT.svg RUN.json..."""

from __future__ import annotations

import json
import sys
from pathlib import Path

WIDTH, HEIGHT, EDGE = 640, 320, 40
COLOURS = ["#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e"]


def draw(files: list[Path], out: Path) -> None:
    """A line for each run: the mean reward of each step; runs with a learning rate of 0 are grey."""
    runs = [json.loads(file.read_text()) for file in files]
    most = max(len(run["rewards"]) for run in runs)
    shown = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">']
    shown.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')

    def at(step: float, reward: float) -> tuple[float, float]:
        return EDGE + (WIDTH - 2 * EDGE) * (step - 1) / max(1, most - 1), HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * reward

    for tenths in range(0, 11, 2):
        x, y = at(1, tenths / 10)
        shown.append(
            f'<line x1="{x}" y1="{y:.1f}" x2="{WIDTH - EDGE}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{x - 6}" y="{y + 4:.1f}" text-anchor="end">{tenths / 10}</text>'
        )
    for step in range(1, most + 1, max(1, most // 8)):
        shown.append(f'<text x="{at(step, 0)[0]:.1f}" y="{HEIGHT - EDGE + 18}" text-anchor="middle">{step}</text>')
    shown.append(
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">step</text><text x="{EDGE}" y="{EDGE - 14}">mean reward</text>'
    )
    for number, run in enumerate(runs):
        colour = COLOURS[number % len(COLOURS)] if run["lr"] else "#888"
        points = " ".join("{:.1f},{:.1f}".format(*at(step, reward)) for step, reward in enumerate(run["rewards"], 1))
        shown.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        name = f"seed {run['seed']}" + ("" if run["lr"] else ", learning rate 0")
        shown.append(f'<text x="{EDGE + 16}" y="{EDGE + 8 + 16 * number}" fill="{colour}">{name}</text>')
    out.write_text("\n".join([*shown, "</svg>"]) + "\n")


if __name__ == "__main__":
    draw([Path(name) for name in sys.argv[2:]], Path(sys.argv[1]))
