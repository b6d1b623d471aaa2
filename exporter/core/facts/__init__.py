"""Facts: properties of a node or job as named strings, parsed from texts of Linux, drivers and packages.

Pure: `exporter.probes` and `exporter.node.gpu_processes` read the files. Unknown facts are absent, never "" or
"unknown". Unexpected text (binary, truncated, another format) gives no fact and no error.
"""
