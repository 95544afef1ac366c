package runfile

import (
	"strings"
	"testing"
)

func TestNeedsKey(t *testing.T) {
	if key := (Needs{}).Key(); key != "" {
		t.Errorf("no needs have the key %q", key)
	}
	first := Needs{Toolchains: []string{"go", "zig"}, Labels: []string{"gpu", "zone=eu"}}
	second := Needs{Toolchains: []string{"zig", "go"}, Labels: []string{"zone=eu", "gpu"}}
	if first.Key() != second.Key() || len(first.Key()) != 8 {
		t.Errorf("the same needs have the keys %q and %q", first.Key(), second.Key())
	}
	if first.Labels[0] != "gpu" || second.Labels[0] != "zone=eu" {
		t.Error("Key changed the needs")
	}
	different := []Needs{
		{}, first, {Toolchains: []string{"go"}}, {Labels: []string{"go"}}, {CPUs: 4}, {MemoryMB: 4}, {Engine: true},
		{Labels: []string{"gpu", "zone=e", "u"}},
	}
	seen := map[string]bool{}
	for _, n := range different {
		if seen[n.Key()] {
			t.Errorf("%v has the key of others", n)
		}
		seen[n.Key()] = true
	}
}

func TestRoutes(t *testing.T) {
	needs := Needs{Labels: []string{"gpu"}}
	tests := []struct{ route, runner, key string }{
		{RunnerRoute("0123456789ab", Needs{}), "0123456789ab", ""},
		{RunnerRoute("0123456789ab", needs), "0123456789ab", needs.Key()},
	}
	for _, test := range tests {
		if runner, key, ok := RunnerOf(test.route); !ok || runner != test.runner || key != test.key {
			t.Errorf("%s is the route of %q, %q, %t", test.route, runner, key, ok)
		}
	}
	longest := PoolRoute(strings.Repeat("p", maxPool), needs)
	if !ValidToken(longest) || !ValidToken(PoolRoute("pool-shell", Needs{})) {
		t.Errorf("%q is no token", longest)
	}
	for _, route := range []string{longest, RouteFinal, "runner-", "pool-shell"} {
		if _, _, ok := RunnerOf(route); ok {
			t.Errorf("%q passes for the route of a runner", route)
		}
	}
}

func TestDifferentNeeds(t *testing.T) {
	cfg := RunConfig{Tasks: []TaskSpec{{Name: "a"}, {Name: "b", CPUs: 2}, {Name: "c", Labels: []string{"x", "y"}},
		{Name: "d", CPUs: 2}, {Name: "e", Labels: []string{"y", "x"}}}}
	if list := cfg.DifferentNeeds(); len(list) != 3 {
		t.Errorf("the different needs are %v", list)
	}
}
