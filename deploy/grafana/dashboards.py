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


def fleet() -> Json:
    return dashboard(
        "gpufault-fleet", "gpufault / Fleet", "Which crashes the fleet has, where, and what the correlator makes of them.",
        [CLUSTERS, JOBS, INSTANCES],
        [
            stat("Nodes watched", "Daemons that answer.", f"count({BUILD}{{{NODES}}}) or vector(0)"),
            stat("Crashed nodes", "Nodes with an incident within the last hour.",
                 f"count(count by (cluster, instance) ({BY_CAUSE}{{{NODES}}})) or vector(0)", bad_from=5,
                 alerts=["GpufaultCrashSpike"]),
            stat("Incidents", "Within the last hour.", f"sum({BY_CAUSE}{{{NODES}}}) or vector(0)"),
            stat("Nodes with fatal faults", "Critical signatures in the kernel's log, within the last hour.",
                 f"count(count by (cluster, instance) (instance_signature:gpufault_fatal_incidents:delta1h{{{NODES}}}))"
                 " or vector(0)", bad_from=1, alerts=["GpufaultFatalSignature", "GpufaultFatalNode"]),
            stat("Nodes exposed", "Nodes whose facts meet the conditions of at least one root cause.",
                 f"count(count by (cluster, instance) (gpufault_exposure{{{NODES}}} == 1)) or vector(0)",
                 alerts=["GpufaultNodesExposed"]),
            stat("Nodes not seen", "Targets that do not answer.", f"count(up{{{NODES}}} == 0) or vector(0)", bad_from=1,
                 alerts=["GpufaultExporterDown", "GpufaultManyExportersDown", "GpufaultAbsent"]),
            row("Crashes"),
            series("Incidents by root cause", "In the hour before each moment. Consequences of others are not in it.",
                   {"{{root_cause}}": f"sum by (root_cause) ({BY_CAUSE}{{{NODES}}})"}, stacked=True, width=12),
            series("Crashed nodes by root cause", "Distinct nodes in the hour before each moment.",
                   {"{{root_cause}}": f"count by (root_cause) ({BY_CAUSE}{{{NODES}}})"}, stacked=True, width=12),
            series("Spike score", "Standard deviations above the hours of the past week; a page from 5 on, if there are five"
                   " incidents on three nodes.",
                   {"{{cluster}} {{root_cause}}": f"cluster_root_cause:gpufault_incidents:score1h{{{CLUSTER}}}"},
                   alerts=["GpufaultCrashSpike"], width=12, unit="none"),
            series("Crashed nodes a day", "Distinct nodes, and what is to be expected of the week before.",
                   {"{{cluster}} {{root_cause}}":
                    f"cluster_root_cause:gpufault_crashed_nodes:count1d{{{CLUSTER}}} > 0",
                    "expected {{cluster}} {{root_cause}}":
                    f"cluster_root_cause:gpufault_crashed_nodes:expected1d{{{CLUSTER}}}"
                    f" and cluster_root_cause:gpufault_crashed_nodes:count1d{{{CLUSTER}}} > 0"},
                   alerts=["GpufaultCrashRateHigh"], width=12, unit="none"),
            table("Root causes", "Distinct nodes that crashed of it in the range of this page.",
                  f"sort_desc(count by (cluster, root_cause) (count_over_time({BY_CAUSE}{{{NODES}}}[$__range])))",
                  number="nodes", alerts=["GpufaultCrashRateHigh"]),
            table("Nodes", "The most incidents that a node had within one hour, in the range of this page.",
                  f"topk(20, sum by (cluster, instance) (max_over_time({BY_CAUSE}{{{NODES}}}[$__range])))",
                  number="incidents", alerts=["GpufaultNodeStorm"]),
            table("Signatures", "Distinct nodes that showed it in the range of this page.",
                  "sort_desc(count by (cluster, signature) (count by (cluster, instance, signature)"
                  f" (count_over_time({DELTA}{{{NODES}}}[$__range]))))", number="nodes"),
            row("Configuration and correlator"),
            table("Exposed nodes by root cause", "Nodes that meet the conditions of a cause, crashed or not.",
                  f"sort_desc(count by (cluster, root_cause) (gpufault_exposure{{{NODES}}} == 1))", number="nodes",
                  alerts=["GpufaultNodesExposed"]),
            table("Findings", "How many times as frequent a crash is with a fact as without it.",
                  f'sort_desc(gpufault_fleet_finding_rate_ratio{{{CLUSTER},job=~"$job"}})', number="rate ratio",
                  alerts=["GpufaultFindingConfirmed"], unit="none"),
            table("Lemons", "Nodes and GPUs that crash more than five times as often as usual, and how sure that is.",
                  f'sort_desc(gpufault_fleet_lemon_probability{{{CLUSTER},job=~"$job"}})', number="probability",
                  alerts=["GpufaultLemonNode"], unit="percentunit"),
            table("Drivers", "What the nodes run.",
                  f"sort_desc(count by (gpu_model, driver_version, rocm_version, cuda_version)"
                  f" (gpufault_node_info{{{NODES}}}))", number="nodes", width=24, height=6),
        ],
    )  # fmt: skip


def root_cause() -> Json:
    return dashboard(
        "gpufault-root-cause", "gpufault / Root cause", "Where a cause strikes, since when, and who is next.",
        [CLUSTERS, JOBS, INSTANCES, CAUSES],
        [
            stat("Crashed nodes, hour", "Distinct nodes within the last hour.",
                 f"count(count by (cluster, instance) ({BY_CAUSE}{{{CAUSE}}})) or vector(0)", bad_from=3, width=6,
                 alerts=["GpufaultCrashSpike"]),
            stat("Crashed nodes, day", "Distinct nodes within a day.",
                 f"count(count by (cluster, instance) (count_over_time({BY_CAUSE}{{{CAUSE}}}[1d]))) or vector(0)", width=6,
                 alerts=["GpufaultCrashRateHigh"]),
            stat("Exposed nodes", "Nodes that meet its conditions, crashed or not.",
                 f"count(count by (cluster, instance) (gpufault_exposure{{{CAUSE}}} == 1)) or vector(0)", width=6,
                 alerts=["GpufaultNodesExposed"]),
            stat("Exposed and not crashed", "Those of them that have not crashed of it within a day.",
                 f"count(gpufault_exposure{{{CAUSE}}} == 1 unless on (cluster, job, instance, root_cause)"
                 f" count_over_time({BY_CAUSE}{{{CAUSE}}}[1d])) or vector(0)", width=6,
                 alerts=["GpufaultNodesExposed"]),
            row("When"),
            series("Incidents by node", "In the hour before each moment.",
                   {"{{instance}} {{root_cause}}": f"sum by (instance, root_cause) ({BY_CAUSE}{{{CAUSE}}})"},
                   stacked=True, width=12),
            series("Counted and expected", "What the score looks at (a node counts at most twice an hour), and the mean of"
                   " the past week.",
                   {"{{cluster}} {{root_cause}}":
                    f'cluster_root_cause:gpufault_incidents:capped1h{{{CLUSTER},root_cause=~"$root_cause"}} > 0',
                    "expected {{cluster}} {{root_cause}}":
                    f'cluster_root_cause:gpufault_incidents:expected1h{{{CLUSTER},root_cause=~"$root_cause"}}'
                    f" and cluster_root_cause:gpufault_incidents:capped1h > 0"},
                   width=12, unit="none", alerts=["GpufaultCrashSpike"]),
            row("Where"),
            table("Nodes", "The most incidents that a node had within one hour, in the range of this page.",
                  f"sort_desc(sum by (cluster, instance, root_cause) (max_over_time({BY_CAUSE}{{{CAUSE}}}[$__range])))",
                  number="incidents"),
            table("Signatures", "By which signatures it showed: distinct nodes in the range of this page.",
                  "sort_desc(count by (signature, root_cause) (count by (cluster, instance, signature, root_cause)"
                  f" (count_over_time({DELTA}{{{CAUSE}}}[$__range]))))", number="nodes"),
            table("Exposed nodes", "Nodes that meet its conditions, crashed or not.",
                  f"sum by (cluster, instance, root_cause) (gpufault_exposure{{{CAUSE}}} == 1)", number="exposed",
                  alerts=["GpufaultNodesExposed"]),
            row("What the crashed nodes have"),
            table("Drivers of crashed nodes", "A count, no evidence: the correlator weighs it against all nodes.",
                  "sort_desc(count by (gpu_model, driver_version, rocm_version, cuda_version, kernel_release)"
                  f" (gpufault_node_info{{{NODES}}} and on (cluster, job, instance)"
                  f" count_over_time({BY_CAUSE}{{{CAUSE}}}[$__range])))", number="nodes", width=24,
                  alerts=["GpufaultFindingConfirmed"]),
        ],
    )  # fmt: skip


def node() -> Json:
    increase = "increase(gpufault_{}_total{{" + NODES + "}}[$__range])"
    return dashboard(
        "gpufault-node", "gpufault / Node", "What happened on a node, what it is made of, and what is seen of it.",
        [CLUSTERS, JOBS, INSTANCES],
        [
            stat("Incidents", "Within the last hour.", f"sum({BY_CAUSE}{{{NODES}}}) or vector(0)", bad_from=10,
                 alerts=["GpufaultNodeStorm"]),
            stat("Fatal faults", "Critical signatures in the kernel's log, within the last hour.",
                 f"sum(instance_signature:gpufault_fatal_incidents:delta1h{{{NODES}}}) or vector(0)", bad_from=1,
                 alerts=["GpufaultFatalNode"]),
            stat("Open incidents", "Not settled yet: they wait for evidence.",
                 f"sum(gpufault_incidents_open{{{NODES}}}) or vector(0)"),
            stat("Exposed to", "Root causes whose conditions this node meets.",
                 f"count(gpufault_exposure{{{NODES}}} == 1) or vector(0)", alerts=["GpufaultNodesExposed"]),
            stat("Sources down", "Sources that cannot be read.", f"count(gpufault_source_up{{{NODES}}} == 0) or vector(0)",
                 bad_from=1, alerts=["GpufaultSourceDown"]),
            stat("Numbers as of", "When what is shown was committed.",
                 f"max(gpufault_last_commit_timestamp_seconds{{{NODES}}}) * 1000", unit="dateTimeFromNow",
                 alerts=["GpufaultExporterStale"]),
            row("Crashes"),
            series("Incidents by signature", "In the hour before each moment.",
                   {"{{signature}}": f"sum by (signature) ({DELTA}{{{NODES}}})"}, stacked=True, width=12),
            series("Lines that show a signature", "Also those of incidents that are open, and of consequences.",
                   {"{{signature}}": f"sum by (signature) (rate(gpufault_lines_matched_total{{{NODES}}}[$__rate_interval]))"
                    " > 0"}, width=12, unit="cps"),
            table("Incidents", "In the range of this page.",
                  f"sort_desc(sum by (instance, signature, root_cause) ({increase.format('incidents')}) > 0)",
                  number="incidents", width=12),
            table("Incidents by GPU", "Those that name a GPU, by its PCI address, since counting began.",
                  f"sort_desc(sum by (instance, gpu, signature) (gpufault_gpu_incidents_total{{{NODES}}}))",
                  number="incidents", width=12, alerts=["GpufaultLemonNode"]),
            table("Last incident", "Of each signature, by the node's clock.",
                  f"sort_desc(max by (instance, signature) (gpufault_last_incident_timestamp_seconds{{{NODES}}})) * 1000",
                  number="settled", unit="dateTimeAsIso", width=12),
            table("Consequences", "Incidents that follow from another one and are counted with it.",
                  f"sort_desc(sum by (instance, signature) ({increase.format('cascades')}) > 0)", number="incidents",
                  width=12),
            row("Facts"),
            table("Facts", "What is known of the node; causes and the correlator go by it.",
                  f"sum by (instance, fact, value) (gpufault_node_fact{{{NODES}}})", number="known", width=12),
            table("GPUs", "Which card is at which address.",
                  f"sum by (instance, gpu, gpu_model, unique_id, serial) (gpufault_gpu_info{{{NODES}}})", number="there",
                  width=6),
            table("Exposed to", "Root causes whose conditions the node meets, crashed or not.",
                  f"sum by (instance, root_cause) (gpufault_exposure{{{NODES}}} == 1)", number="exposed", width=6,
                  alerts=["GpufaultNodesExposed"]),
        ],
    )  # fmt: skip


def agents() -> Json:
    process = f"process_{{}}{{{{{NODES}}}}}"
    fleet_of = f'{CLUSTER},job=~"$job"'
    return dashboard(
        "gpufault-agents", "gpufault / Agent health", "Whether the daemons and the correlator see what they should.",
        [CLUSTERS, JOBS, INSTANCES],
        [
            stat("Answer", "Share of the targets that answer.", f"avg(up{{{NODES}}})", unit="percentunit",
                 alerts=["GpufaultExporterDown", "GpufaultManyExportersDown", "GpufaultAbsent"]),
            stat("Oldest numbers", "Age of what the most stale daemon shows.",
                 f"max(timestamp(gpufault_last_commit_timestamp_seconds{{{NODES}}})"
                 f" - gpufault_last_commit_timestamp_seconds{{{NODES}}})", unit="s", bad_from=300,
                 alerts=["GpufaultExporterStale"]),
            stat("Sources down", "Sources of a daemon that cannot be read.",
                 f"count(gpufault_source_up{{{NODES}}} == 0) or vector(0)", bad_from=1, alerts=["GpufaultSourceDown"]),
            stat("State or journal not written", "Daemons that count in memory only, or keep their records back.",
                 f"count(gpufault_state_up{{{NODES}}} == 0 or gpufault_journal_up{{{NODES}}} == 0) or vector(0)",
                 bad_from=1, alerts=["GpufaultStateNotWritten"]),
            stat("Configuration refused", "Daemons that work with an older configuration than their file has.",
                 f"count(gpufault_config_last_reload_successful{{{NODES}}} == 0) or vector(0)", bad_from=1,
                 alerts=["GpufaultConfigNotInForce"]),
            stat("Signatures off", "Switched off after time-outs.",
                 f"count(gpufault_signature_off{{{NODES}}} == 1) or vector(0)", bad_from=1,
                 alerts=["GpufaultSignatureOff"]),
            row("What is seen"),
            series("Read", "Bytes of each kind of source.",
                   {"{{source}}": f"sum by (source) (rate(gpufault_source_bytes_read_total{{{NODES}}}[$__rate_interval]))"},
                   unit="Bps"),
            series("Largest lag", "Age of the oldest byte that is not yet done with: the ten worst.",
                   {"{{instance}} {{source}}": f"topk(10, gpufault_source_lag_seconds{{{NODES}}})"}, unit="s",
                   alerts=["GpufaultSourceLagging"]),
            series("Unread", "Files and lines that were passed over, by reason, and kernel records that were lost, since the"
                   " daemons started.",
                   {"{{reason}}": f"sum by (reason) (gpufault_source_dropped_total{{{NODES}}})",
                    "lost records": f"sum(gpufault_source_lost_records_total{{{NODES}}})"},
                   alerts=["GpufaultLogsUnread"]),
            series("Lines that look like crashes and match nothing", "Signatures to be written.",
                   {"{{source}}":
                    f"sum by (source) (increase(gpufault_unmatched_error_lines_total{{{NODES}}}[$__rate_interval]))"},
                   alerts=["GpufaultUnmatchedErrorLines"]),
            series("Files", "Tracked, and held open.",
                   {"tracked": f"sum(gpufault_source_files{{{NODES}}})",
                    "open": f"sum(gpufault_source_open_files{{{NODES}}})"}),
            series("Rotations and truncations", "Seen by the sources.",
                   {"rotations": f"sum(increase(gpufault_source_rotations_total{{{NODES}}}[$__rate_interval]))",
                    "truncations": f"sum(increase(gpufault_source_truncations_total{{{NODES}}}[$__rate_interval]))"}),
            row("What it costs"),
            series("Memory", "Resident, of the ten largest.",
                   {"{{instance}}": f"topk(10, {process.format('resident_memory_bytes')})"}, unit="bytes",
                   alerts=["GpufaultExporterRestarting"]),
            series("CPU", "Share of a core, of the ten busiest.",
                   {"{{instance}}": f"topk(10, rate(process_cpu_seconds_total{{{NODES}}}[$__rate_interval]))"},
                   unit="percentunit"),
            series("Series scraped", "Of one daemon: the most and the mean.",
                   {"most": f"max(scrape_samples_scraped{{{NODES}}})", "mean": f"avg(scrape_samples_scraped{{{NODES}}})"}),
            row("Versions and correlator"),
            table("Versions", "What runs where.", f"sort_desc(count by (job, version, python) ({BUILD}{{{NODES}}}))",
                  number="daemons"),
            table("Packs", "Signature packs in force.",
                  f"sort_desc(count by (pack, signatures) (gpufault_signature_pack_info{{{NODES}}}))", number="daemons"),
            series("Age of the correlator's result", "Since the last result, and the last for which nothing was missing.",
                   {"result": f"gpufault_fleet_result_age_seconds{{{fleet_of}}}",
                    "complete result": f"gpufault_fleet_complete_result_age_seconds{{{fleet_of}}}"}, unit="s",
                   alerts=["GpufaultFleetResultStale"]),
        ],
    )  # fmt: skip


DASHBOARDS = {"fleet": fleet, "root-cause": root_cause, "node": node, "agents": agents}
