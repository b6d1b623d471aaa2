"""A bar chart as SVG: throughput by log and program, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

_COLORS = ("#1f6feb", "#d29922", "#8b949e", "#cf222e")
_LEFT, _BAR, _GAP, _DECADE = 290, 13, 12, 110


def chart(rows: Mapping[str, Mapping[str, float]], programs: Sequence[str]) -> str:
    """Rows of MB/s by program, as bars below each other."""
    height = 50 + sum(len(row) * _BAR + _GAP for row in rows.values())
    width = _LEFT + 4 * _DECADE + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, program in enumerate(programs):
        x = _LEFT + number * 100
        out.append(
            f'<rect x="{x}" y="8" width="10" height="10" fill="{_COLORS[number]}"/><text x="{x + 14}" y="17">{program}</text>'
        )
    for power in range(5):
        x = _LEFT + power * _DECADE
        out.append(f'<path d="M{x} 26V{height - 18}" stroke="#ddd"/>')
        out.append(f'<text x="{x}" y="{height - 5}" text-anchor="middle">{10**power}</text>')
    out.append(f'<text x="{width - 4}" y="{height - 5}" text-anchor="end">MB/s</text>')
    y = 32
    for name, row in rows.items():
        out.append(f'<text x="{_LEFT - 8}" y="{y + 10}" text-anchor="end">{name}</text>')
        for number, program in enumerate(programs):
            if program in row:
                long = max(2.0, math.log10(max(row[program], 1.01)) * _DECADE)
                out.append(
                    f'<rect x="{_LEFT}" y="{y}" width="{long:.0f}" height="{_BAR - 2}" fill="{_COLORS[number]}"/>'
                )
                out.append(f'<text x="{_LEFT + long + 4:.0f}" y="{y + 10}">{row[program]:.3g}</text>')
                y += _BAR
        y += _GAP
    return "\n".join([*out, "</svg>"]) + "\n"
