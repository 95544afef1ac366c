package querysampler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/querysampler"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// gathered adds up the series of each metric that have the label run: values, or of
// histograms the observations.
func gathered(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "run" {
					sums[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue() +
						float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
	}
	return sums
}

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

// progress are the lines of a run's progress.
func (l *lines) progress() (found []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == "run progress" {
			found = append(found, fields)
		}
	}
	return found
}

// TestMetricsOfARun: the process that decides counts what happens in a run and knows what is
// in flight, logs a line in a minute in which something happened and none in another, and
// forgets the run with its end.
func TestMetricsOfARun(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		log := natstest.Log(t)
		env, registry, logged := servicetest.Env(t, log), prometheus.NewRegistry(), &lines{}
		env.Metrics, env.Logger = registry, slog.New(slog.NewJSONHandler(logged, nil))
		cfg := servicetest.Config("a")
		cfg.External, cfg.Endpoint, cfg.Staleness.Max = true, "", 3
		cfg.Limits.Timeout = runfile.Duration(time.Hour)
		cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}}
		servicetest.OpenRun(t, log, "r", cfg)
		servicetest.Start(t, func(ctx context.Context) error { return querysampler.Run(ctx, env) })
		time.Sleep(time.Second) // in virtual time: it decides now

		state := func(typ events.Type, entity, ordinal string, data any) {
			servicetest.Append(t, log, servicetest.Event(t, "r", typ, entity, ordinal, data))
		}
		state(events.GroupOpenedType, "x1", "0", events.GroupOpened{Task: "a", Size: 2})
		servicetest.StartRollout(t, log, "r", "x1-0", "a")
		servicetest.StartRollout(t, log, "r", "x1-1", "a")
		servicetest.StartRollout(t, log, "r", "x2-0", "a") // stays in flight
		state(events.WeightsPublishedType, "small", "2", events.WeightsPublished{Policy: "small", Version: 2})
		state(events.TurnSampledType, "x1-0", "0", events.TurnSampled{PolicyVersion: 1, PromptTokens: 7,
			CompletionTokens: 3})
		state(events.RolloutFinishedType, "x1-0", "0", events.RolloutFinished{Tokens: 10, Sampled: 1})
		state(events.RolloutScoredType, "x1-0", "0", events.RolloutScored{Reward: 0.5})
		state(events.RolloutFailedType, "x1-1", "0", events.RolloutFailed{Stage: events.StageTools,
			Class: events.ClassSandbox})
		state(events.BatchReadyType, "trainer", "1", events.BatchReady{Step: 1, Groups: []string{"x1"},
			Rollouts: []string{"x1-0"}, Staleness: 2, RewardMean: 0.5})
		time.Sleep(70 * time.Second)

		got := gathered(t, registry)
		for name, want := range map[string]float64{
			"rondo_rollouts_total": 2, "rondo_rollout_failures_total": 1, "rondo_rollout_reward": 1,
			"rondo_turns_total": 1, "rondo_tokens_total": 10, "rondo_turn_staleness_versions": 1,
			"rondo_batches_total": 1, "rondo_batch_staleness_versions": 2, "rondo_batch_reward": 0.5,
			"rondo_fate_rollouts_total": 1, "rondo_fate_tokens_total": 10,
			"rondo_rollouts_in_flight": 1, "rondo_run_paused": 0, "rondo_policy_version": 2,
			"rondo_staleness_limit_versions": 3,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s is %g, %v, want %g", name, v, ok, want)
			}
		}
		if age := got["rondo_rollout_oldest_seconds"]; age < 50 || age > 80 {
			t.Errorf("the oldest rollout is %g s old", age)
		}
		if got["rondo_log_bytes"] <= 0 || got["rondo_log_limit_bytes"] != float64(cfg.Log.Bytes()) {
			t.Errorf("the log has %g of %g bytes", got["rondo_log_bytes"], got["rondo_log_limit_bytes"])
		}
		time.Sleep(5 * time.Minute)
		said := logged.progress()
		if len(said) != 1 || said[0]["run"] != "r" || said[0]["scored"] != 1.0 || said[0]["failed"] != 1.0 ||
			said[0]["reward_mean"] != 0.5 || said[0]["in_flight"] != 1.0 {
			t.Errorf("the run's lines are %v", said)
		}
		servicetest.CloseRun(t, log, "r")
		time.Sleep(2 * time.Minute) // its last rollout is cancelled, and it comes to rest
		if left := gathered(t, registry); len(left) > 0 {
			t.Errorf("left of a closed run: %v", left)
		}
	})
}
