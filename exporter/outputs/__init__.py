"""Outputs: send incidents to an OTLP collector or a webhook, and write metrics to a file for node_exporter.

Each output has its own thread. Incidents are read from the journal, and the position of each output is committed with the
rest of the state. So a receiver that is down loses nothing that the journal still holds.
"""
