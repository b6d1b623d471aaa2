"""Reports node faults to Kubernetes: a condition of each node, and events. Reads them from the node daemons."""
