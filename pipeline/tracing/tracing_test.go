package tracing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/pipeline/tracing"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/tests/collector"
)

// lines takes what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// alone takes this machine's settings away, and sends spans soon.
func alone(t *testing.T) {
	t.Helper()
	for _, name := range []string{"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_TRACES_SAMPLER",
		"OTEL_TRACES_SAMPLER_ARG"} {
		t.Setenv(name, "")
	}
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
}

func begin(t *testing.T, log *eventlog.Log, endpoint string, to *lines) *tracing.Tracing {
	t.Helper()
	tr, err := tracing.New(t.Context(), tracing.Options{Endpoint: endpoint, Log: log.Reader,
		Logger: slog.New(slog.NewTextHandler(to, nil)), Instance: "here"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr
}

// input is a delivery of an event.
func input(service string, e events.Event) tracing.Input {
	return tracing.Input{Service: service, Subject: e.Subject(), Parent: tracing.Read(e.TraceParent), ID: e.ID,
		Time: e.Time, Delivered: 1}
}

// TestOneTrace: what services state of a rollout becomes one trace, plain or compressed,
// of which each process knows the first span without asking. Nothing that a model, a tool
// or a user wrote is in it.
func TestOneTrace(t *testing.T) {
	const secret = "hunter2 is the password"
	for _, compression := range []string{"none", "gzip"} {
		t.Run(compression, func(t *testing.T) {
			alone(t)
			t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
			c, log := collector.Start(t), natstest.Log(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.HTTP)
			servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
			const rollout = "g000001-0"
			sampler, generator, runner, scorer := begin(t, log, "", &lines{}), begin(t, log, "", &lines{}),
				begin(t, log, "", &lines{}), begin(t, log, "", &lines{})

			started := servicetest.Event(t, "r", events.RolloutStartedType, rollout,
				"0", events.RolloutStarted{Group: "g000001", Task: "a", Deadline: time.Now().Add(time.Hour)})
			started.DecidedAt = time.Now()
			sampler.StampDecision(t.Context(), log.Reader, &started)
			last := servicetest.Append(t, log, started)
			work := func(tr *tracing.Tracing, service string, facts ...events.Event) {
				ctx, w := tr.Start(t.Context(), input(service, last))
				tracing.Stamp(ctx, log.Reader, facts)
				for i, f := range facts {
					f.Source = service
					last = servicetest.Append(t, log, f)
					facts[i] = last
				}
				tracing.Stated(ctx, facts)
				w.End("")
			}
			work(generator, "generator", servicetest.Event(t, "r", events.TurnSampledType, rollout,
				"0", events.TurnSampled{
					Content: secret, ToolCalls: []events.ToolCall{{ID: secret, Name: secret, Arguments: secret}},
					FinishReason: secret, PromptTokens: 7, CompletionTokens: 3,
					StartedAt: time.Now().Add(-time.Second), LatencyMS: 500,
				}))
			work(runner, "toolrunner", servicetest.Event(t, "r", events.ToolsCompletedType, rollout,
				"0", events.ToolsCompleted{Results: []events.ToolResult{
					{CallID: "call-1", Name: "read_file", Content: secret, StartedAt: time.Now(), DurationMS: 5},
					{CallID: secret, Name: "hunter2", Content: secret, Error: true, StartedAt: time.Now()},
				}}))
			work(scorer, "scorer", servicetest.Event(t, "r", events.RolloutScoredType, rollout,
				"0", events.RolloutScored{Reward: 0.5, Flags: []string{secret}, DurationMS: 10}))
			for _, tr := range []*tracing.Tracing{sampler, generator, runner, scorer} {
				tr.Close()
			}

			spans, byName := c.Spans(), map[string]collector.Span{}
			known := map[string]bool{"": true}
			for _, s := range spans {
				byName[s.Name], known[s.ID] = s, true
			}
			first := byName["invoke_agent small"]
			if first.Parent != "" || first.Service != "rondo-scorer" || first.Attributes["rondo.reward"] != "0.5" ||
				first.Attributes["gen_ai.operation.name"] != "invoke_agent" {
				t.Errorf("the first span is %+v", first)
			}
			for _, s := range spans {
				if s.Trace != first.Trace || !known[s.Parent] {
					t.Errorf("%s is in trace %s below %q", s.Name, s.Trace, s.Parent)
				}
				for key, value := range s.Attributes {
					if strings.Contains(value, "hunter2") {
						t.Errorf("%s of %s is %q", key, s.Name, value)
					}
				}
			}
			for name, below := range map[string]string{
				"generator rollout.started": "invoke_agent small", "chat small": "generator rollout.started",
				"toolrunner rollout.turn_sampled": "invoke_agent small",
				"execute_tool read_file":          "toolrunner rollout.turn_sampled",
				"execute_tool other":              "toolrunner rollout.turn_sampled",
				"evaluate verifier":               "scorer rollout.tools_completed",
			} {
				if s, ok := byName[name]; !ok || s.Parent != byName[below].ID {
					t.Errorf("%q is below %q, want %q", name, s.Parent, below)
				}
			}
			if chat := byName["chat small"]; chat.Attributes["gen_ai.usage.input_tokens"] != "7" ||
				chat.End-chat.Start != uint64(500*time.Millisecond) ||
				chat.Attributes["gen_ai.request.model"] != "small" {
				t.Errorf("the model's span is %+v", chat)
			}
			if !byName["execute_tool other"].Failed || byName["execute_tool read_file"].Failed {
				t.Error("the failed call is not the one that failed")
			}
		})
	}
}

// TestSubmittedRollout: what outsiders submit piece by piece, each in a trace of its own or in
// none, becomes one trace of the rollout all the same.
func TestSubmittedRollout(t *testing.T) {
	alone(t)
	c, log := collector.Start(t), natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	tr := begin(t, log, c.HTTP, &lines{})
	var last events.Event
	submitter := tracing.Begin("theirs", time.Unix(1, 0))
	for i, fact := range []events.Event{
		servicetest.Event(t, "r", events.RolloutStartedType, "x1-0",
			"0", events.RolloutStarted{Group: "x1", Task: "a"}),
		servicetest.Event(t, "r", events.TurnSampledType, "x1-0", "0", events.TurnSampled{}),
		servicetest.Event(t, "r", events.RolloutFailedType, "x1-0",
			"0", events.RolloutFailed{Stage: events.StageGenerator, Class: events.ClassCancelled}),
	} {
		in := tracing.Input{Service: "intake", Subject: events.IntakeSubject("r", fact.Type, "x1-0"),
			ID: fmt.Sprint(i), Time: time.Now()}
		if i == 1 {
			in.Parent = trace.NewSpanContext(trace.SpanContextConfig{TraceID: submitter.TraceID(),
				SpanID: trace.SpanID{1, 2, 3}, TraceFlags: trace.FlagsSampled})
		}
		ctx, w := tr.Start(t.Context(), in)
		facts := []events.Event{fact}
		facts[0].Prev = last.Seq
		tracing.Stamp(ctx, log.Reader, facts)
		last = servicetest.Append(t, log, facts[0])
		tracing.Stated(ctx, []events.Event{last})
		w.End("")
	}
	tr.Close()
	want := tracing.Read(last.TraceParent).TraceID().String()
	found := 0
	for _, s := range c.Spans() {
		if s.Name == "chat small" || s.Name == "invoke_agent small" && s.Failed {
			if found++; s.Trace != want {
				t.Errorf("%s is in another trace", s.Name)
			}
		}
	}
	for _, s := range c.Spans() {
		if s.Name == "intake rollout.turn_sampled" && s.Trace == submitter.TraceID().String() &&
			s.Parent == "0102030000000000" {
			found++ // the work on a submission is in the trace of who sent it
		}
	}
	if found != 3 {
		t.Errorf("%d of 3 spans: %v", found, c.Spans())
	}
}

// TestBatchLinks: a batch has a link to each of its rollouts, of which there may be more than
// OpenTelemetry keeps by default, and each rollout one to the batch.
func TestBatchLinks(t *testing.T) {
	alone(t)
	c, log := collector.Start(t), natstest.Log(t)
	servicetest.OpenRun(t, log, "r", servicetest.Config("a"))
	tr := begin(t, log, c.HTTP, &lines{})
	batch := events.BatchReady{Step: 1}
	for i := range 200 {
		started := servicetest.Event(t, "r", events.RolloutStartedType, fmt.Sprint("g000001-", i),
			"0", events.RolloutStarted{Group: "g000001", Task: "a"})
		started.DecidedAt = time.Now()
		tr.StampDecision(t.Context(), log.Reader, &started)
		batch.Rollouts = append(batch.Rollouts, servicetest.Append(t, log, started).Entity)
	}
	ready := servicetest.Event(t, "r", events.BatchReadyType, "trainer", "1", batch)
	ready.DecidedAt = time.Now()
	tr.StampDecision(t.Context(), log.Reader, &ready)
	tr.Decided("trainerfeeder", servicetest.Append(t, log, ready))
	tr.Close()
	var whole collector.Span
	for _, s := range c.Spans() {
		if s.Parent == "" {
			whole = s
		}
	}
	if len(whole.Links) != len(batch.Rollouts) || len(c.Spans()) != len(batch.Rollouts)+1 {
		t.Errorf("%d links, %d spans", len(whole.Links), len(c.Spans()))
	}
	for _, s := range c.Spans() {
		if s.ID != whole.ID && (len(s.Links) != 1 || s.Links[0] != whole.First()) {
			t.Errorf("a rollout's span has the links %v", s.Links)
		}
	}
}

// TestOff: nobody asks for traces, so there are none, and what services do costs no span. The trace
// context of an input goes on.
func TestOff(t *testing.T) {
	alone(t)
	for range 2 {
		tr, err := tracing.New(t.Context(), tracing.Options{})
		if tr != nil || err != nil {
			t.Fatalf("%v, %v", tr, err)
		}
		in := tracing.Input{Service: "s", Subject: "rondo.v1.r.rollout.g000001-0.started",
			Parent: tracing.Begin("x", time.Unix(1, 0))}
		ctx, work := tr.Start(t.Context(), in)
		if work != nil || trace.SpanContextFromContext(ctx).TraceID() != in.Parent.TraceID() {
			t.Error("a process that traces nothing does not carry the trace on")
		}
		facts := []events.Event{{Run: "r", Type: events.TurnSampledType, Entity: "g000001-0"}}
		tracing.Stamp(ctx, eventlog.Reader{}, facts) // which asks no log
		tracing.Stated(ctx, facts)
		if tracing.Read(facts[0].TraceParent).TraceID() != in.Parent.TraceID() {
			t.Errorf("traceparent %q", facts[0].TraceParent)
		}
		work.End("failed")
		tr.Close()
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1") // which is not used
		t.Setenv("OTEL_SDK_DISABLED", "true")
	}
}

// TestCollectorHangs: a collector that takes requests and never answers holds up nobody, and is
// logged once; so is its return.
func TestCollectorHangs(t *testing.T) {
	alone(t)
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "30")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
	c := collector.Start(t)
	mended, asked := make(chan struct{}), make(chan struct{}, 1000)
	hangs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		select {
		case <-mended:
			c.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hangs.Close)
	logged := &lines{}
	tr := begin(t, natstest.Log(t), hangs.URL, logged)
	more := func() {
		_, w := tr.Start(t.Context(), tracing.Input{Service: "s", Subject: "x", ID: "i", Time: time.Now()})
		w.End("")
	}
	for range 1000 { // far more than there is room for
		more()
	}
	natstest.Eventually(t, "several tries to export", func() bool { more(); return len(asked) > 3 })
	natstest.Eventually(t, "a line", func() bool { return logged.count("trace collector unavailable") > 0 })
	close(mended)
	natstest.Eventually(t, "spans", func() bool { more(); return len(c.Spans()) > 0 })
	natstest.Eventually(t, "the line of the return", func() bool {
		return logged.count(
			"trace collector recovered") == 1
	})
	if n := logged.count("trace collector unavailable"); n != 1 {
		t.Errorf("the outage was logged %d times\n%s", n, logged.text.String())
	}
}

// TestSampler: processes keep or leave the same traces, whatever the flag of their inputs says.
func TestSampler(t *testing.T) {
	alone(t)
	c, log := collector.Start(t), natstest.Log(t)
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
	for _, service := range []string{"one", "two"} {
		tr := begin(t, log, c.HTTP, &lines{})
		for i := range 100 {
			_, w := tr.Start(t.Context(), tracing.Input{Service: service, Subject: "rondo.v1.r.rollout.g-0.started",
				Parent: tracing.Begin(fmt.Sprint(i), time.Unix(1, 0))})
			w.End("")
		}
		tr.Close()
	}
	kept := map[string]int{}
	for _, s := range c.Spans() {
		kept[s.Trace]++
	}
	for id, n := range kept {
		if n != 2 {
			t.Errorf("trace %s has %d spans", id, n)
		}
	}
	if len(kept) < 20 || len(kept) > 80 {
		t.Errorf("%d of 100 traces are kept", len(kept))
	}
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "2")
	if _, err := tracing.New(t.Context(), tracing.Options{Endpoint: c.HTTP}); err == nil {
		t.Error("a share of 2 is taken")
	}
}

// TestWrongEndpoint: mistakes are told before anything runs, and without a password.
func TestWrongEndpoint(t *testing.T) {
	alone(t)
	for _, endpoint := range []string{"collector:4318", "ftp://me:hunter2@x", "http://"} {
		if _, err := tracing.New(t.Context(), tracing.Options{Endpoint: endpoint}); err == nil ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	if _, err := tracing.New(t.Context(), tracing.Options{Endpoint: "http://127.0.0.1:4318"}); err == nil {
		t.Error("an unknown protocol is taken")
	}
}

// TestLogLines: a line that is logged about a rollout names its run and its
// trace, and says nothing twice.
func TestLogLines(t *testing.T) {
	logged := &lines{}
	l := slog.New(tracing.LogHandler(slog.NewJSONHandler(logged, nil)))
	var off *tracing.Tracing
	ctx, _ := off.Start(t.Context(), tracing.Input{Service: "s", Subject: "rondo.v1.first.rollout.g000001-0.started",
		Parent: tracing.Begin("x", time.Unix(1, 0))})
	l.With("service", "s", "run", "first").WarnContext(ctx, "input failed", "error", errors.New("no\nluck"))
	l.InfoContext(context.Background(), "plane started")
	if n := logged.count(`"run":`); n != 1 {
		t.Errorf("the run is named %d times", n)
	}
	var line map[string]any
	rest := json.NewDecoder(&logged.text)
	if err := rest.Decode(&line); err != nil {
		t.Fatal(err)
	}
	want := tracing.Begin("x", time.Unix(1, 0)).TraceID().String()
	if line["msg"] != "input failed" || line["run"] != "first" || line["rollout"] != "g000001-0" ||
		line["trace_id"] != want || line["error"] != "no\nluck" {
		t.Errorf("%v", line)
	}
	line = nil
	if err := rest.Decode(&line); err != nil || line["run"] != nil || line["trace_id"] != nil {
		t.Errorf("%v, %v", line, err)
	}
}
