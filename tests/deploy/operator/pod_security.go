package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sort"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// object has the two places in which a pod's template can be: a pod's own, and a workload's.
type object struct {
	Kind     string            `json:"kind"`
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     json.RawMessage   `json:"spec"`
}

type verdict struct {
	Pod      string   `json:"pod"`
	Standard string   `json:"standard"` // the strictest that admits it
	Reasons  []string `json:"reasons"`  // of the next stricter one
}

// podSecurity prints a line of JSON for each pod, by the checks of the admission plugin itself.
func podSecurity(text []byte) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		fail(err)
	}
	for number, document := range bytes.Split(text, []byte("\n---")) {
		var item object
		if err := yaml.Unmarshal(document, &item); err != nil {
			fail(fmt.Errorf("document %d: %w", number, err))
		}
		pod, found, err := podOf(item)
		if err != nil {
			fail(fmt.Errorf("document %d: %w", number, err))
		}
		if !found {
			continue
		}
		result := verdict{Pod: item.Kind + "/" + item.Metadata.Name, Standard: string(api.LevelRestricted), Reasons: []string{}}
		for _, level := range []api.Level{api.LevelRestricted, api.LevelBaseline} {
			reasons := refusals(evaluator, level, pod)
			if len(reasons) == 0 {
				break
			}
			result.Reasons = reasons
			result.Standard = map[api.Level]string{api.LevelRestricted: "baseline", api.LevelBaseline: "privileged"}[level]
		}
		if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
			fail(err)
		}
	}
}

func refusals(evaluator policy.Evaluator, level api.Level, pod corev1.PodTemplateSpec) []string {
	reasons := []string{}
	latest := api.LevelVersion{Level: level, Version: api.LatestVersion()}
	for _, check := range evaluator.EvaluatePod(latest, &pod.ObjectMeta, &pod.Spec) {
		if !check.Allowed {
			reasons = append(reasons, check.ForbiddenReason+": "+check.ForbiddenDetail)
		}
	}
	sort.Strings(reasons)
	return reasons
}

func podOf(item object) (corev1.PodTemplateSpec, bool, error) {
	if item.Kind == "Pod" {
		pod := corev1.PodTemplateSpec{ObjectMeta: item.Metadata}
		return pod, true, json.Unmarshal(item.Spec, &pod.Spec)
	}
	var workload struct {
		Template *corev1.PodTemplateSpec `json:"template"`
	}
	if len(item.Spec) == 0 || json.Unmarshal(item.Spec, &workload) != nil || workload.Template == nil {
		return corev1.PodTemplateSpec{}, false, nil
	}
	return *workload.Template, true, nil
}
