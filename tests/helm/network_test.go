package helm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// policySpec is what the tests read of a NetworkPolicy.
type policySpec struct {
	PodSelector     selector
	PolicyTypes     []string
	Ingress, Egress []rule
}

type selector struct{ MatchLabels map[string]string }

func (s selector) selects(labels map[string]string) bool {
	for name, value := range s.MatchLabels {
		if labels[name] != value {
			return false
		}
	}
	return true
}

type rule struct {
	From, To []peer
	Ports    []struct{ Port any }
}

type peer struct {
	PodSelector, NamespaceSelector *selector
	IPBlock                        *struct{ CIDR string }
}

// reaches says whether one of the rules lets a pod of this namespace with these
// labels through at a port.
func reaches(rules []rule, labels map[string]string, port any) bool {
	return slices.ContainsFunc(rules, func(r rule) bool {
		return slices.ContainsFunc(r.Ports, func(p struct{ Port any }) bool {
			return fmt.Sprint(
				p.Port) == fmt.Sprint(port)
		}) &&
			slices.ContainsFunc(slices.Concat(r.From, r.To), func(p peer) bool {
				return p.NamespaceSelector == nil && p.PodSelector != nil && p.PodSelector.selects(labels)
			})
	})
}

// rulesOf are all rules of the policies that select a pod.
func rulesOf(policies []object, labels map[string]string) (ingress, egress []rule) {
	for _, p := range policies {
		if p.Spec.PodSelector.selects(labels) {
			ingress, egress = append(ingress, p.Spec.Ingress...), append(egress, p.Spec.Egress...)
		}
	}
	return ingress, egress
}

// natsPods are the labels that NATS's own chart gives its servers.
var natsPods = map[string]string{"app.kubernetes.io/name": "nats", "app.kubernetes.io/instance": release,
	"app.kubernetes.io/component": "nats"}

// TestEverythingElseIsDenied: no pod is left to the default, which is to allow; no rule stands for
// everybody or for every port.
func TestEverythingElseIsDenied(t *testing.T) {
	for _, values := range []string{"plain", "everything", "external"} {
		objects := render(t, values)
		policies := of(objects, "NetworkPolicy")
		denied := func(labels map[string]string) bool {
			return slices.ContainsFunc(policies, func(p object) bool {
				return len(p.Spec.Ingress)+len(p.Spec.Egress) == 0 &&
					slices.Equal(p.Spec.PolicyTypes, []string{"Ingress", "Egress"}) &&
					p.Spec.PodSelector.selects(labels)
			})
		}
		for name, d := range deployments(objects) {
			if !denied(d.Spec.Template.Metadata.Labels) {
				t.Errorf("%s: nothing is denied to %s", values, name)
			}
		}
		if !denied(natsPods) {
			t.Errorf("%s: nothing is denied to the NATS servers", values)
		}
		for _, p := range policies {
			if len(p.Spec.PodSelector.MatchLabels) == 0 ||
				p.Spec.PodSelector.MatchLabels["app.kubernetes.io/instance"] != release {
				t.Errorf("%s: %s is about pods of others: %+v", values, p.Metadata.Name, p.Spec.PodSelector)
			}
			for _, r := range slices.Concat(p.Spec.Ingress, p.Spec.Egress) {
				if len(r.Ports) == 0 || len(r.From)+len(r.To) == 0 {
					t.Errorf("%s: %s allows everything: %+v", values, p.Metadata.Name, r)
				}
			}
		}
	}
}

// TestWhoReachesWhat: every service reaches the log; those that ask inference servers reach these,
// and nobody else; ports are open to who needs them.
func TestWhoReachesWhat(t *testing.T) {
	objects := render(t, "everything")
	policies, all := of(objects, "NetworkPolicy"), deployments(objects)
	natsIn, natsOut := rulesOf(policies, natsPods)
	if !reaches(natsIn, natsPods, 6222) || !reaches(natsOut, natsPods, 6222) {
		t.Error("NATS servers do not reach each other")
	}
	asking := []string{"admin", "generator", "toolrunner-pool-shell", "toolrunner-big-vm",
		"scorer", "teacher", "gateway"}
	for name, d := range all {
		labels := d.Spec.Template.Metadata.Labels
		in, out := rulesOf(policies, labels)
		for _, port := range []int{4222, 8222} {
			if !reaches(out, natsPods, port) || !reaches(natsIn, labels, port) {
				t.Errorf("%s does not reach the log at %d", name, port)
			}
		}
		if model := open(out, 8000); model != slices.Contains(asking[1:], name) {
			t.Errorf("%s reaches inference servers: %v", name, model)
		}
		policy := all["policy"].Spec.Template.Metadata.Labels
		policyIn, _ := rulesOf(policies, policy)
		if builtin := reaches(out, policy, 8700); builtin != slices.Contains(asking[1:], name) ||
			builtin && !reaches(policyIn, labels, "http") {
			t.Errorf("%s reaches the built-in policy: %v", name, builtin)
		}
		if !open(out, 443) {
			t.Errorf("%s does not reach the store", name)
		}
		if serves := slices.ContainsFunc(in, func(r rule) bool {
			return fmt.Sprint(
				r.Ports[0].Port) == "http"
		}); serves != slices.Contains([]string{"dashboard", "gateway", "policy"}, name) {
			t.Errorf("%s is served to others: %v", name, serves)
		}
	}
	_, external := rulesOf(of(render(t, "external"), "NetworkPolicy"), all["generator"].Spec.Template.Metadata.Labels)
	if !open(external, 4222) || reaches(external, natsPods, 4222) {
		t.Errorf("a NATS server outside of the chart: %+v", external)
	}
}

// open says whether rules lead out of the cluster at a port.
func open(rules []rule, port int) bool {
	return slices.ContainsFunc(rules, func(r rule) bool {
		return slices.ContainsFunc(r.Ports, func(p struct{ Port any }) bool {
			return fmt.Sprint(
				p.Port) == fmt.Sprint(port)
		}) &&
			slices.ContainsFunc(r.To, func(p peer) bool { return p.IPBlock != nil })
	})
}

// TestSelectorsFindTheirPods: each Service and each PodDisruptionBudget is for one Deployment, each
// Deployment has a budget, and metrics are read of all.
func TestSelectorsFindTheirPods(t *testing.T) {
	objects := render(t, "everything")
	budgets := map[string]bool{}
	for _, o := range objects {
		var found []string
		for name, d := range deployments(objects) {
			var s selector
			text := o.Spec.Selector
			if o.Kind == "Service" {
				text = json.RawMessage(`{"matchLabels":` + string(text) + `}`)
			}
			if len(o.Spec.Selector) > 0 && json.Unmarshal(text, &s) == nil &&
				s.selects(d.Spec.Template.Metadata.Labels) {
				found = append(found, name)
			}
		}
		name := strings.TrimPrefix(o.Metadata.Name, release+"-")
		switch o.Kind {
		case "PodDisruptionBudget":
			budgets[name] = true
			fallthrough
		case "Service", "Deployment":
			if !slices.Equal(found, []string{name}) {
				t.Errorf("%s %s is for %v", o.Kind, name, found)
			}
		case "PodMonitor":
			if len(found) != len(deployments(objects)) {
				t.Errorf("metrics are read of %v", found)
			}
		}
	}
	for name := range deployments(objects) {
		if !budgets[name] && name != "admin" {
			t.Errorf("%s has no budget", name)
		}
	}
}
