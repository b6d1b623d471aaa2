"""Charts as SVG text: pure functions from plain values. They use classes, never inline styles; `style.CSS` colours them.

Each takes a `width` in pixels at which labels keep their size; a page shows a narrow and a wide one by media query.
"""
