"""Pulls the journals of node daemons over HTTP into the history."""
