"""Facts: what a node or a job is, as named strings, parsed from the texts in which Linux, drivers and packages state it.

Pure: text in, values out; `exporter.probes` and `exporter.node.gpu_processes` do the reading. A fact that is not known is
absent, never "" or "unknown", and text that is not what it should be (binary, cut off, of another form) states nothing:
it is no error.
"""
