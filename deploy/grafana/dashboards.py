"""The four dashboards: `python deploy/render.py` writes them as JSON beside this file.

Of all nodes the sparse recorded series are asked (deploy/prometheus/rules.yml), the daemons' own only of one node: a
window over every pair of signature and cause of ten thousand nodes is more than a Prometheus answers.
"""

from __future__ import annotations

from panels import Json, dashboard, row, series, stat, table, variable

CLUSTER = 'cluster=~"$cluster"'
NODES = f'{CLUSTER},job=~"$job",instance=~"$instance"'
CAUSE = f'{NODES},root_cause=~"$root_cause"'
DELTA = "instance_signature_root_cause:gpufault_incidents:delta1h"
BY_CAUSE = "instance_root_cause:gpufault_incidents:delta1h"
OPEN_FAULTS = "instance_gpu_root_cause:gpufault_node_fault:open"
BUILD = "gpufault_build_info"

CLUSTERS = variable("cluster", "Cluster", f"label_values({BUILD}, cluster)", all_value=".*")
JOBS = variable("job", "Job", f'label_values({BUILD}{{cluster=~"$cluster"}}, job)', all_value=".+")
INSTANCES = variable(
    "instance", "Instance", f'label_values({BUILD}{{cluster=~"$cluster",job=~"$job"}}, instance)', all_value=".+"
)
CAUSES = variable(
    "root_cause",
    "Root cause",
    'label_values(gpufault_incidents_total{cluster=~"$cluster",job=~"$job",instance=~"$instance"}, root_cause)',
    all_value=".+",
)


def added(counter: str, window: str) -> str:
    """What a counter of nodes has gained in a window. Its series begin with the first one: `increase()` would miss that."""
    name = f"gpufault_{counter}_total{{{NODES}}}"
    began = (
        f"{name} * 0 and on (job, instance) up{{{NODES}}} offset {window} == 1"  # else the node may only have been away
    )
    return f"{name} - ({name} offset {window} or ({began}) or min_over_time({name}[{window}]))"


def fleet() -> Json:
    return dashboard(
        "gpufault-fleet", "gpufault / Fleet", "Crashes of the fleet by cause and node, and the findings of the correlator.",
        [CLUSTERS, JOBS, INSTANCES],
        [
            stat("Nodes watched", "Daemons that answer.", f"count({BUILD}{{{NODES}}}) or vector(0)"),
            stat("Crashed nodes", "Nodes with an incident within the last hour.",
                 f"count(count by (cluster, instance) ({BY_CAUSE}{{{NODES}}})) or vector(0)", bad_from=5,
                 alerts=["GpufaultCrashSpike", "GpufaultCrashSpikeOfAllCauses", "GpufaultPlaceSpike"]),
            stat("Incidents", "Within the last hour.", f"sum({BY_CAUSE}{{{NODES}}}) or vector(0)"),
            stat("Nodes with open faults", "Faults that an operator has to fix and that nothing has cleared.",
                 f"count(count by (cluster, instance) ({OPEN_FAULTS}{{{NODES}}})) or vector(0)", bad_from=1,
                 alerts=["GpufaultNodeFault", "GpufaultFatalSignature", "GpufaultFatalNodes"]),
            stat("Nodes at risk", "Nodes whose facts meet the conditions of at least one root cause.",
                 f"count(count by (cluster, instance) (gpufault_exposure{{{NODES}}} == 1)) or vector(0)",
                 alerts=["GpufaultNodesExposed"]),
            stat("Nodes down", "Targets that do not answer.", f"count(up{{{NODES}}} == 0) or vector(0)", bad_from=1,
                 alerts=["GpufaultExporterDown", "GpufaultManyExportersDown", "GpufaultAbsent"]),
            row("Crashes"),
            series("Incidents by root cause", "Per hour, root incidents only.",
                   {"{{root_cause}}": f"sum by (root_cause) ({BY_CAUSE}{{{NODES}}})"}, stacked=True, width=12),
            series("Crashed nodes by root cause", "Distinct nodes per hour.",
                   {"{{root_cause}}": f"count by (root_cause) ({BY_CAUSE}{{{NODES}}})"}, stacked=True, width=12),
            series("Spike score", "Standard deviations above the hours of the past week. Pages above 4.5, with at least"
                   " five independent crashes on three nodes.",
                   {"{{cluster}} {{root_cause}} {{kind}}": f"cluster_root_cause_kind:gpufault_crashes:score1h{{{CLUSTER}}}"},
                   alerts=["GpufaultCrashSpike", "GpufaultWorkloadSpike"], width=12, unit="none"),
            series("Crashes a day", "Independent crashes, and the number expected from the previous week.",
                   {"{{cluster}} {{root_cause}}":
                    f"cluster_root_cause:gpufault_crashes:count1d{{{CLUSTER}}} > 0",
                    "expected {{cluster}} {{root_cause}}":
                    f"cluster_root_cause:gpufault_crashes:expected1d{{{CLUSTER}}}"
                    f" and cluster_root_cause:gpufault_crashes:count1d{{{CLUSTER}}} > 0"},
                   alerts=["GpufaultCrashRateHigh", "GpufaultCrashRateRising"], width=12, unit="none"),
            table("Root causes", "Distinct nodes that crashed, in the selected time range.",
                  f"sort_desc(count by (cluster, root_cause) (count_over_time({BY_CAUSE}{{{NODES}}}[$__range])))",
                  number="nodes", alerts=["GpufaultCrashRateHigh"]),
            table("Nodes", "Highest number of incidents within one hour, in the selected time range.",
                  f"topk(20, sum by (cluster, instance) (max_over_time({BY_CAUSE}{{{NODES}}}[$__range])))",
                  number="incidents", alerts=["GpufaultNodeStorm"]),
            table("Signatures", "Distinct nodes, in the selected time range.",
                  "sort_desc(count by (cluster, signature) (count by (cluster, instance, signature)"
                  f" (count_over_time({DELTA}{{{NODES}}}[$__range]))))", number="nodes"),
            row("Configuration and correlator"),
            table("Nodes at risk by root cause", "Nodes that meet the conditions of a cause, whether or not they crashed.",
                  f"sort_desc(count by (cluster, root_cause) (gpufault_exposure{{{NODES}}} == 1))", number="nodes",
                  alerts=["GpufaultNodesExposed"]),
            table("Findings", "How many times more frequent a crash is with a fact than without it.",
                  f'sort_desc(gpufault_fleet_finding_rate_ratio{{{CLUSTER},job=~"$job"}})', number="rate ratio",
                  alerts=["GpufaultFindingConfirmed"], unit="none"),
            table("Unusually bad nodes", "Probability of crashing more than five times as often as similar nodes or GPUs.",
                  f'sort_desc(gpufault_fleet_lemon_probability{{{CLUSTER},job=~"$job"}})', number="probability",
                  alerts=["GpufaultLemonNode"], unit="percentunit"),
            table("Drivers", "Driver versions of the nodes.",
                  f"sort_desc(count by (gpu_model, driver_version, rocm_version, cuda_version)"
                  f" (gpufault_node_info{{{NODES}}}))", number="nodes", width=24, height=6),
        ],
    )  # fmt: skip


def root_cause() -> Json:
    return dashboard(
        "gpufault-root-cause", "gpufault / Root cause", "Where and when a root cause occurs, and which nodes are at risk.",
        [CLUSTERS, JOBS, INSTANCES, CAUSES],
        [
            stat("Crashed nodes, hour", "Distinct nodes within the last hour.",
                 f"count(count by (cluster, instance) ({BY_CAUSE}{{{CAUSE}}})) or vector(0)", bad_from=3, width=6,
                 alerts=["GpufaultCrashSpike"]),
            stat("Crashed nodes, day", "Distinct nodes within a day.",
                 f"count(count by (cluster, instance) (count_over_time({BY_CAUSE}{{{CAUSE}}}[1d]))) or vector(0)", width=6,
                 alerts=["GpufaultCrashRateHigh"]),
            stat("Nodes at risk", "Nodes that meet its conditions, whether or not they crashed.",
                 f"count(count by (cluster, instance) (gpufault_exposure{{{CAUSE}}} == 1)) or vector(0)", width=6,
                 alerts=["GpufaultNodesExposed"]),
            stat("At risk, not crashed", "Nodes at risk that have not crashed with this cause within a day.",
                 f"count(gpufault_exposure{{{CAUSE}}} == 1 unless on (cluster, job, instance, root_cause)"
                 f" count_over_time({BY_CAUSE}{{{CAUSE}}}[1d])) or vector(0)", width=6,
                 alerts=["GpufaultNodesExposed"]),
            row("When"),
            series("Incidents by node", "Per hour.",
                   {"{{instance}} {{root_cause}}": f"sum by (instance, root_cause) ({BY_CAUSE}{{{CAUSE}}})"},
                   stacked=True, width=12),
            series("Counted and expected", "Independent crashes an hour (a job is one, a user three at most), and the"
                   " mean of the past week.",
                   {"{{cluster}} {{root_cause}} {{kind}}":
                    f'cluster_root_cause_kind:gpufault_crashes:count1h{{{CLUSTER},root_cause=~"$root_cause"}} > 0',
                    "expected {{cluster}} {{root_cause}} {{kind}}":
                    f'cluster_root_cause_kind:gpufault_crashes:expected1h{{{CLUSTER},root_cause=~"$root_cause"}}'
                    f" and cluster_root_cause_kind:gpufault_crashes:count1h > 0"},
                   width=12, unit="none", alerts=["GpufaultCrashSpike"]),
            row("Where"),
            table("Nodes", "Highest number of incidents within one hour, in the selected time range.",
                  f"sort_desc(sum by (cluster, instance, root_cause) (max_over_time({BY_CAUSE}{{{CAUSE}}}[$__range])))",
                  number="incidents"),
            table("Signatures", "Distinct nodes by signature, in the selected time range.",
                  "sort_desc(count by (signature, root_cause) (count by (cluster, instance, signature, root_cause)"
                  f" (count_over_time({DELTA}{{{CAUSE}}}[$__range]))))", number="nodes"),
            table("Nodes at risk", "Nodes that meet its conditions, whether or not they crashed.",
                  f"sum by (cluster, instance, root_cause) (gpufault_exposure{{{CAUSE}}} == 1)", number="exposed",
                  alerts=["GpufaultNodesExposed"]),
            row("Facts of the crashed nodes"),
            table("Drivers of crashed nodes", "Counts only. The correlator compares them with all nodes.",
                  "sort_desc(count by (gpu_model, driver_version, rocm_version, cuda_version, kernel_release)"
                  f" (gpufault_node_info{{{NODES}}} and on (cluster, job, instance)"
                  f" count_over_time({BY_CAUSE}{{{CAUSE}}}[$__range])))", number="nodes", width=24,
                  alerts=["GpufaultFindingConfirmed"]),
        ],
    )  # fmt: skip


def node() -> Json:
    return dashboard(
        "gpufault-node", "gpufault / Node", "Incidents, facts and sources of a node.",
        [CLUSTERS, JOBS, INSTANCES],
        [
            stat("Incidents", "Within the last hour.", f"sum({BY_CAUSE}{{{NODES}}}) or vector(0)", bad_from=10,
                 alerts=["GpufaultNodeStorm"]),
            stat("Open faults", "Faults that an operator has to fix and that nothing has cleared.",
                 f"count({OPEN_FAULTS}{{{NODES}}}) or vector(0)", bad_from=1,
                 alerts=["GpufaultNodeFault", "GpufaultFatalNode"]),
            stat("Open incidents", "Waiting for evidence.",
                 f"sum(gpufault_incidents_open{{{NODES}}}) or vector(0)"),
            stat("At risk of", "Root causes whose conditions this node meets.",
                 f"count(gpufault_exposure{{{NODES}}} == 1) or vector(0)", alerts=["GpufaultNodesExposed"]),
            stat("Sources down", "Sources that cannot be read.", f"count(gpufault_source_up{{{NODES}}} == 0) or vector(0)",
                 bad_from=1, alerts=["GpufaultSourceDown"]),
            stat("Last commit", "When the metrics were committed.",
                 f"max(gpufault_last_commit_timestamp_seconds{{{NODES}}}) * 1000", unit="dateTimeFromNow",
                 alerts=["GpufaultExporterStale"]),
            row("Crashes"),
            series("Incidents by signature", "Per hour.",
                   {"{{signature}}": f"sum by (signature) ({DELTA}{{{NODES}}})"}, stacked=True, width=12),
            series("Lines that match a signature", "Includes open incidents and consequences.",
                   {"{{signature}}": f"sum by (signature) ({added('lines_matched', '$__rate_interval')}) > 0"}, width=12,
                   unit="none"),
            table("Incidents", "In the selected time range.",
                  f"sort_desc(sum by (instance, signature, root_cause) ({added('incidents', '$__range')}) > 0)",
                  number="incidents", width=12),
            table("Incidents by GPU", "Incidents that name a GPU, by PCI address, since counting began.",
                  f"sort_desc(sum by (instance, gpu, signature) (gpufault_gpu_incidents_total{{{NODES}}}))",
                  number="incidents", width=12, alerts=["GpufaultLemonNode"]),
            table("Last incident", "Per signature, by the node's clock.",
                  f"sort_desc(max by (instance, signature) (gpufault_last_incident_timestamp_seconds{{{NODES}}})) * 1000",
                  number="settled", unit="dateTimeAsIso", width=12),
            table("Consequences", "Incidents caused by another incident, counted separately.",
                  f"sort_desc(sum by (instance, signature) ({added('cascades', '$__range')}) > 0)", number="incidents",
                  width=12),
            row("Facts"),
            table("Facts", "Facts of the node, used by root causes and the correlator.",
                  f"sum by (instance, fact, value) (gpufault_node_fact{{{NODES}}})", number="known", width=12),
            table("GPUs", "Cards by PCI address.",
                  f"sum by (instance, gpu, gpu_model, unique_id, serial) (gpufault_gpu_info{{{NODES}}})", number="there",
                  width=6),
            table("At risk of", "Root causes whose conditions the node meets, whether or not it crashed.",
                  f"sum by (instance, root_cause) (gpufault_exposure{{{NODES}}} == 1)", number="exposed", width=6,
                  alerts=["GpufaultNodesExposed"]),
            row("Telemetry of dcgm-exporter and AMD's exporter (needs gpu-exporters.yml)"),
            series("Memory errors and incidents", "Uncorrected ECC errors and remapped rows, beside our incidents.",
                   {"ECC {{instance}} {{gpu}}": f"instance_gpu:gpu_uncorrected_ecc_errors:max{{{NODES}}}",
                    "remapped {{instance}} {{gpu}}": f"instance_gpu:gpu_remapped_rows:max{{{NODES}}}",
                    "incidents {{instance}}": f"sum by (instance) ({BY_CAUSE}{{{NODES}}})"}, unit="none"),
            series("Temperature", "Hottest sensor of each GPU.",
                   {"{{instance}} {{gpu}}": f"instance_gpu:gpu_temperature_celsius:max{{{NODES}}}"}, unit="celsius"),
            series("Links", "Replays of NVLink (NVIDIA) or PCIe (AMD), and data received over XGMI.",
                   {"replays {{instance}} {{gpu}}": f"instance_gpu:gpu_link_replays:max{{{NODES}}}",
                    "XGMI kB/s {{instance}} {{gpu}}": f"instance_gpu:gpu_xgmi_received:rate5m{{{NODES}}}"}, unit="none"),
        ],
    )  # fmt: skip


def agents() -> Json:
    process = f"process_{{}}{{{{{NODES}}}}}"
    fleet_of = f'{CLUSTER},job=~"$job"'
    return dashboard(
        "gpufault-agents", "gpufault / Agent health", "Health of the daemons and the correlator.",
        [CLUSTERS, JOBS, INSTANCES],
        [
            stat("Targets up", "Share of the targets that answer.", f"avg(up{{{NODES}}})", unit="percentunit",
                 alerts=["GpufaultExporterDown", "GpufaultManyExportersDown", "GpufaultAbsent"]),
            stat("Oldest metrics", "Age of the metrics of the stalest daemon.",
                 f"max(timestamp(gpufault_last_commit_timestamp_seconds{{{NODES}}})"
                 f" - gpufault_last_commit_timestamp_seconds{{{NODES}}})", unit="s", bad_from=300,
                 alerts=["GpufaultExporterStale"]),
            stat("Sources down", "Sources of a daemon that cannot be read.",
                 f"count(gpufault_source_up{{{NODES}}} == 0) or vector(0)", bad_from=1, alerts=["GpufaultSourceDown"]),
            stat("State or journal not written", "Daemons that count in memory only, or hold back their records.",
                 f"count(gpufault_state_up{{{NODES}}} == 0 or gpufault_journal_up{{{NODES}}} == 0) or vector(0)",
                 bad_from=1, alerts=["GpufaultStateNotWritten"]),
            stat("Configuration rejected", "Daemons that run an older configuration than the one in their file.",
                 f"count(gpufault_config_last_reload_successful{{{NODES}}} == 0) or vector(0)", bad_from=1,
                 alerts=["GpufaultConfigNotInForce"]),
            stat("Signatures suspended", "Suspended for a log after timeouts.",
                 f"count(gpufault_signature_off{{{NODES}}} == 1) or vector(0)", bad_from=1,
                 alerts=["GpufaultSignatureOff"]),
            row("Input"),
            series("Read", "Bytes per second by source.",
                   {"{{source}}": f"sum by (source) (rate(gpufault_source_bytes_read_total{{{NODES}}}[$__rate_interval]))"},
                   unit="Bps"),
            series("Largest lag", "Age of the oldest unprocessed byte, top ten.",
                   {"{{instance}} {{source}}": f"topk(10, gpufault_source_lag_seconds{{{NODES}}})"}, unit="s",
                   alerts=["GpufaultSourceLagging"]),
            series("Unread", "Skipped files and lines by reason, and lost kernel records, since the"
                   " daemons started.",
                   {"{{reason}}": f"sum by (reason) (gpufault_source_dropped_total{{{NODES}}})",
                    "lost records": f"sum(gpufault_source_lost_records_total{{{NODES}}})"},
                   alerts=["GpufaultLogsUnread"]),
            series("Lines that look like crashes but match no signature", "Candidates for new signatures.",
                   {"{{source}}":
                    f"sum by (source) (increase(gpufault_unmatched_error_lines_total{{{NODES}}}[$__rate_interval]))"},
                   alerts=["GpufaultUnmatchedErrorLines"]),
            series("Files", "Tracked and open files.",
                   {"tracked": f"sum(gpufault_source_files{{{NODES}}})",
                    "open": f"sum(gpufault_source_open_files{{{NODES}}})"}),
            series("Rotations and truncations", "Detected by the sources.",
                   {"rotations": f"sum(increase(gpufault_source_rotations_total{{{NODES}}}[$__rate_interval]))",
                    "truncations": f"sum(increase(gpufault_source_truncations_total{{{NODES}}}[$__rate_interval]))"}),
            row("Resources"),
            series("Memory", "Resident memory, top ten.",
                   {"{{instance}}": f"topk(10, {process.format('resident_memory_bytes')})"}, unit="bytes",
                   alerts=["GpufaultExporterRestarting"]),
            series("CPU", "Share of a core, top ten.",
                   {"{{instance}}": f"topk(10, rate(process_cpu_seconds_total{{{NODES}}}[$__rate_interval]))"},
                   unit="percentunit"),
            series("Series scraped", "Per daemon: maximum and mean.",
                   {"most": f"max(scrape_samples_scraped{{{NODES}}})", "mean": f"avg(scrape_samples_scraped{{{NODES}}})"}),
            row("Versions and correlator"),
            table("Versions", "Versions of the daemons.", f"sort_desc(count by (job, version, python) ({BUILD}{{{NODES}}}))",
                  number="daemons"),
            table("Packs", "Active signature packs.",
                  f"sort_desc(count by (pack, signatures) (gpufault_signature_pack_info{{{NODES}}}))", number="daemons"),
            series("Age of the correlator's result", "Age of the last result and of the last complete result.",
                   {"result": f"gpufault_fleet_result_age_seconds{{{fleet_of}}}",
                    "complete result": f"gpufault_fleet_complete_result_age_seconds{{{fleet_of}}}"}, unit="s",
                   alerts=["GpufaultFleetResultStale"]),
        ],
    )  # fmt: skip


DASHBOARDS = {"fleet": fleet, "root-cause": root_cause, "node": node, "agents": agents}
