// Reads YAML documents and decodes those of the Prometheus operator into its own types, which refuse unknown fields.
// Its API is in no schema of Kubernetes. Prints how many of each kind there were. With the argument pod-security, it prints
// instead what the Pod Security Standards say of each pod.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail(err)
	}
	if len(os.Args) == 2 && os.Args[1] == "pod-security" {
		podSecurity(text)
		return
	}
	seen := map[string]int{}
	for number, document := range bytes.Split(text, []byte("\n---")) {
		var is struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := yaml.Unmarshal(document, &is); err != nil {
			fail(fmt.Errorf("document %d: %w", number, err))
		}
		if is.APIVersion != monitoring.SchemeGroupVersion.String() {
			continue
		}
		var object any
		switch is.Kind {
		case monitoring.PodMonitorsKind:
			object = &monitoring.PodMonitor{}
		case monitoring.ServiceMonitorsKind:
			object = &monitoring.ServiceMonitor{}
		case monitoring.PrometheusRuleKind:
			object = &monitoring.PrometheusRule{}
		default:
			fail(fmt.Errorf("document %d: kind %q is not known here", number, is.Kind))
		}
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			fail(fmt.Errorf("document %d: %s: %w", number, is.Kind, err))
		}
		seen[is.Kind]++
	}
	for _, kind := range []string{monitoring.PodMonitorsKind, monitoring.PrometheusRuleKind, monitoring.ServiceMonitorsKind} {
		fmt.Println(kind, seen[kind])
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
