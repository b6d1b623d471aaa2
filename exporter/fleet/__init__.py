"""The correlator: which configuration makes which crash more frequent, over all nodes of a fleet.

What needs files, a network or a clock is in `load`, `store` and `service`; everything else here is arithmetic on arrays.
Needs the extra `fleet`.
"""
