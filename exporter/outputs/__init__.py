"""Where incidents go besides /metrics and the journal: OTLP logs, a webhook, a file for node_exporter.

Each output has a thread of its own. What is to be sent is read from the journal; how far an output has come is committed
with everything else in the state, so a receiver that is away costs nothing that the journal still holds.
"""
