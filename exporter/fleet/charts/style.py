"""The style sheet of the charts, for the page that holds them. Colours are Okabe and Ito's, safe for colour-blind eyes."""

LIGHT = """--infrastructure:#c2410c;--workload:#2563a8;--unclear:#8a8f98;--ink:#1c1f23;--dim:#5b656d;--grid:#e7e9eb;
--background:#fbfbfa;--card:#fff;--line:#e1e4e7;--worse:#b3261e;--better:#17734f;--accent:#2563a8"""
DARK = """--infrastructure:#f59e6b;--workload:#7fb4ea;--unclear:#9aa3ad;--ink:#e6e9ec;--dim:#a0aab3;--grid:#272d34;
--background:#111418;--card:#181c21;--line:#2d343b;--worse:#f28b82;--better:#5cc79b;--accent:#7fb4ea"""

CSS = """
.chart{display:block;max-width:100%;height:auto;font:11px system-ui,-apple-system,"Segoe UI",sans-serif}
.chart text{fill:var(--dim)}.chart .strong{fill:var(--ink)}
.chart .grid{stroke:var(--grid)}.chart .axis{stroke:var(--dim)}.chart .mark{stroke:var(--ink);stroke-dasharray:3 3}
.chart .infrastructure{fill:var(--infrastructure)}.chart .workload{fill:var(--workload)}.chart .unclear{fill:var(--unclear)}
.chart line.infrastructure{stroke:var(--infrastructure)}.chart line.workload{stroke:var(--workload)}
.chart line.unclear{stroke:var(--unclear)}.chart line{stroke-width:1}.chart line.interval{stroke-width:2}
.chart .spark{fill:none;stroke:var(--dim);stroke-width:1.5}.chart .empty{fill:var(--grid)}
.chart .change{fill:var(--ink)}.chart .span{fill-opacity:.25;stroke:var(--unclear)}
.chart .span.infrastructure{stroke:var(--infrastructure)}.chart .span.workload{stroke:var(--workload)}
.narrow{display:none}
@media screen and (max-width:44rem){.narrow{display:block}.wide{display:none}}
@media print{.chart{font-size:13px}}
"""
