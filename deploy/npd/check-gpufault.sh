#!/bin/sh
# A check for node-problem-detector's custom plugin monitor: exit code 0 no problem, 1 a problem, 2 not known, and one line
# of at most 80 characters. It asks the daemon of this node; GPUFAULT_URL, GPUFAULT_USER and the like are read from the
# environment. GPUFAULT names the command, where it is not in /opt/gpufault.
gpufault=${GPUFAULT:-/opt/gpufault/bin/gpufault}
if [ ! -x "$gpufault" ]; then
  printf '%s\n' "$gpufault is not there; set GPUFAULT" | cut -c 1-80
  exit 2
fi
exec "$gpufault" node-check --format npd --timeout 4
