package toolrunner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/tasks"
)

// has makes an offer with neither toolchains nor an engine.
func has(cpus, memoryMB int, labels ...string) *offer {
	nothing := errors.New("not here")
	return &offer{
		cpus: cpus, memoryMB: memoryMB, labels: labels, told: map[string]bool{}, room: tasks.Machine{}.Room,
		lacks:  func(context.Context, string) error { return nothing },
		engine: func(context.Context) error { return nothing },
	}
}

func TestOffer(t *testing.T) {
	rich := has(8, 4096, "gpu", "zone=eu")
	rich.lacks = func(_ context.Context, name string) error {
		if name == "go" {
			return nil
		}
		return errors.New("no " + name)
	}
	for text, needs := range map[string]runfile.Needs{
		"":              {Toolchains: []string{"go"}, CPUs: 8, MemoryMB: 4096, Labels: []string{"zone=eu", "gpu"}},
		"no cobol":      {Toolchains: []string{"go", "cobol"}},
		"9 CPUs":        {CPUs: 9},
		"4097 MiB":      {MemoryMB: 4097},
		"label zone=us": {Labels: []string{"zone=us"}},
		"1024 MiB":      {DiskMB: 1024},
		"not here":      {Engine: true},
	} {
		t.Run(text, func(t *testing.T) {
			err := rich.missing(t.Context(), needs)
			if (text == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), text) {
				t.Errorf("%v: %v, want %q", needs, err, text)
			}
		})
	}
	if err := has(1, 0).missing(t.Context(), runfile.Needs{MemoryMB: 1 << 20}); err != nil {
		t.Errorf("memory that is not known: %v", err)
	}
}

// TestTasksGoWhereTheirNeedsAreMet: of two runners only the one with the label works on a task that
// asks for it, in its first turn and when the runner that had begun is gone.
func TestTasksGoWhereTheirNeedsAreMet(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	needs := runfile.Needs{Labels: []string{"gpu"}}
	open(t, log, "r", func(cfg *runfile.RunConfig) { cfg.Tasks[0].Labels = needs.Labels })
	const gone = "0123456789ab"
	orphan := runfile.RunnerRoute(gone, needs)
	if _, err := log.Streams.EnsureConsumer(t.Context(), topology.ConsumersOf(topology.ToolRunner)[0].For("r", orphan),
		orphan); err != nil {
		t.Fatal(err)
	}
	old := func(s *Service) { s.heartbeats.since = s.heartbeats.since.Add(-2 * goneAfter) }
	plain, _ := service(t, log, func(s *Service) { old(s); s.offer = has(1, 0) })
	env := servicetest.Env(t, log)
	for _, route := range plain.routes(t.Context(), env, "r") {
		if strings.HasSuffix(route, needs.Key()) {
			t.Fatalf("the runner without the label serves %s", route)
		}
	}
	labelled, _ := service(t, log, func(s *Service) { old(s); s.offer = has(1, 0, "gpu") })
	want := []string{poolRoute, runfile.RunnerRoute(labelled.runner, runfile.Needs{}),
		runfile.PoolRoute(poolRoute, needs), runfile.RunnerRoute(labelled.runner, needs), orphan}
	got := slices.DeleteFunc(labelled.routes(t.Context(), env, "r"), func(route string) bool {
		// orphaned until the other's first beat is heard
		return route == runfile.RunnerRoute(plain.runner, runfile.Needs{})
	})
	if !slices.Equal(got, want) {
		t.Fatalf("the runner with the label serves %v, want %v", got, want)
	}
	for n, route := range []string{runfile.PoolRoute(poolRoute, needs), orphan} {
		turn(t, log, "r", n, route, shell("c", "cat a.txt"))
		if done := answers(t, log, "r", n); done.Runner != labelled.runner {
			t.Errorf("turn %d is answered by %s", n, done.Runner)
		}
	}
}
