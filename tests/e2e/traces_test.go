package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/tests/collector"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestOneTraceOfARollout runs each service as a process of its own. A real collector gets a
// complete trace of a rollout, from processes of which some compress. It has the model's turns, the
// tools, the verifier, the advantage and the batch, each below the span that it belongs to. It has
// no text of a transcript. The processes end although the collector of one of them is away.
func TestOneTraceOfARollout(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	c := collector.Start(t)
	log, url, objects := outside(t)
	policy := fmt.Sprintf("127.0.0.1:%d", natstest.FreePorts(t, 1)[0])
	web := c.Real(t)
	serve := func(endpoint, compression string, args ...string) *program.Process {
		cmd := exec.Command(rondo, append([]string{"service", "--nats", url, "--store", objects, "--dir", t.TempDir(),
			"--builtin-endpoint", "http://" + policy + "/v1",
			"--log-format", "json", "--otlp-endpoint", endpoint}, args...)...)
		cmd.Env = append(os.Environ(), "OTEL_BSP_SCHEDULE_DELAY=100", "OTEL_EXPORTER_OTLP_COMPRESSION="+compression)
		return program.Start(t, cmd)
	}
	parts := []string{"generator", "toolrunner", "scorer", "advantagecalculator", "trainerfeeder"}
	var processes []*program.Process
	for i, part := range parts {
		processes = append(processes, serve(web, []string{"", "gzip"}[i%2], part))
	}
	processes = append(processes, serve(web, "", "intake", "querysampler", "weightpublisher"),
		serve("http://127.0.0.1:1", "", "policy", "trainer", "deadletters", "--policy-listen", policy))
	mustRun(t, nil, "run", "open", "first", "--nats", url, "--store", objects, "--tasks", smallPack(t),
		"--file", smallRun(t, 1))

	var batch events.BatchReady
	program.Eventually(t, func() error {
		e, err := log.LastOfType(t.Context(), "first", events.BatchReadyType, "trainer")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, processes[0])
		}
		batch = servicetest.Data[events.BatchReady](t, e)
		return nil
	})
	rollout := batch.Rollouts[0]
	r, err := log.Rollout(t.Context(), "first", rollout)
	if err != nil {
		t.Fatal(err)
	}
	var spans []collector.Span
	program.Eventually(t, func() error {
		spans = ofRollout(c, rollout)
		return complete(spans, &r, parts)
	})
	first := spans[0].Trace
	program.Eventually(t, func() error { // the batch's span may come behind the rollout's
		batches := 0
		for _, s := range c.Spans() {
			if s.Name == "batch trainer" && s.Parent == "" &&
				slices.ContainsFunc(s.Links, func(link string) bool { return strings.HasPrefix(link, first+"/") }) {
				batches++
			}
		}
		if batches != 1 {
			return fmt.Errorf("%d batches have a link to rollout %s", batches, rollout)
		}
		return nil
	})
	noTexts(t, c, log, &r)
	for _, p := range processes {
		if text := p.String(); strings.Count(text, "trace collector unavailable") > 1 {
			t.Errorf("more than one line of a collector that is away:\n%s", text)
		}
	}
}

// ofRollout are the spans of a rollout, the first one of its trace first.
func ofRollout(c *collector.Collector, rollout string) (spans []collector.Span) {
	for _, s := range c.Spans() {
		if s.Attributes["rondo.rollout"] == rollout {
			spans = append(spans, s)
			if s.Parent == "" {
				spans[0], spans[len(spans)-1] = spans[len(spans)-1], spans[0]
			}
		}
	}
	return spans
}

// complete says what a rollout's trace lacks.
func complete(spans []collector.Span, r *events.Rollout, parts []string) error {
	known, named, processes := map[string]collector.Span{}, map[string]int{}, map[string]string{}
	for _, s := range spans {
		known[s.ID] = s
		named[strings.Fields(s.Name)[0]]++
		processes[s.Service] = s.Instance
	}
	if len(spans) == 0 || spans[0].Parent != "" || spans[0].Name != "invoke_agent small" {
		return fmt.Errorf("%d spans, none of them the first", len(spans))
	}
	for _, s := range spans {
		if s.Trace != spans[0].Trace {
			return fmt.Errorf("%s is in another trace", s.Name)
		}
		if _, ok := known[s.Parent]; !ok && s.ID != spans[0].ID {
			return fmt.Errorf("%s is below a span that is not there", s.Name)
		}
		below := known[s.Parent].Name
		if operation := s.Attributes["gen_ai.operation.name"]; operation == "chat" &&
			!strings.HasPrefix(below, "generator ") ||
			operation == "execute_tool" && !strings.HasPrefix(below, "toolrunner ") {
			return fmt.Errorf("%s is below %s", s.Name, below)
		}
	}
	calls := 0
	for _, turn := range r.Turns {
		calls += len(turn.ToolCalls)
	}
	for name, want := range map[string]int{"invoke_agent": 1, "chat": len(r.Turns), "execute_tool": calls,
		"evaluate": 1, "advantage": 1, "batch": 1} {
		if named[name] != want {
			return fmt.Errorf("%d spans %s, want %d: %v", named[name], name, want, named)
		}
	}
	instances := map[string]bool{}
	for _, part := range parts {
		instance, ok := processes["rondo-"+part]
		if !ok || instances[instance] {
			return fmt.Errorf("no span of a process of its own of %s: %v", part, processes)
		}
		instances[instance] = true
	}
	return nil
}

// noTexts: nothing that the model, the tools or the task say is in a span.
func noTexts(t *testing.T, c *collector.Collector, log *eventlog.Log, r *events.Rollout) {
	t.Helper()
	task, err := log.Task(t.Context(), r.Run, r.Started.Task)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{task.Instruction}
	for _, turn := range r.Turns {
		texts = append(texts, turn.Content)
		for _, call := range turn.ToolCalls {
			texts = append(texts, call.Arguments)
		}
		for _, result := range r.Tools.Answer(turn.Turn).Results {
			texts = append(texts, result.Content)
		}
	}
	looked := 0
	for _, s := range c.Spans() {
		for key, value := range s.Attributes {
			for _, text := range texts {
				if len(text) < 12 {
					continue
				}
				if looked++; strings.Contains(value, text) || len(value) > 200 {
					t.Errorf("%s of %s is %q", key, s.Name, value)
				}
			}
		}
	}
	if looked == 0 {
		t.Error("there was no text to look for")
	}
}
