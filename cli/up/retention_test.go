package up

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/gc"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestRetention: a plane removes by itself what its retention says, first a closed run's
// stream and then its archive, says so, and leaves open runs alone. A round that fails
// is told, and made again.
func TestRetention(t *testing.T) {
	log := natstest.Log(t)
	for _, run := range []string{"open", "old"} {
		servicetest.OpenRun(t, log, run, servicetest.Config("a"))
		servicetest.StartRollout(t, log, run, "g000001-0", "a")
		if _, err := log.Appender.Seal(t.Context(), run, true); err != nil {
			t.Fatal(err)
		}
	}
	servicetest.CloseRun(t, log, "old")
	if _, err := log.Appender.Seal(t.Context(), "old", true); err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	policy := gc.Policy{Every: runfile.Duration(10 * time.Millisecond), Streams: 1, Archives: 1,
		Objects: runfile.Duration(time.Hour), KeepWeights: 2, Referred: true}
	metrics := prometheus.NewRegistry()
	r, err := newRetainer(log, policy, slog.New(slog.NewTextHandler(&lines, nil)), metrics)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.run(ctx) }()
	natstest.Eventually(t, "the old run is forgotten", func() bool {
		_, err := log.Segments(t.Context(), "old")
		return errors.Is(err, eventlog.ErrForgotten)
	})
	natstest.Eventually(t, "a round behind that", func() bool {
		return count(t, metrics, "rondo_retention_rounds_total",
			"done") > 1
	})
	stop()
	<-done
	if runs, err := log.AllRuns(t.Context()); err != nil || !slices.Equal(runs, []string{"open"}) {
		t.Errorf("the runs are %v, %v", runs, err)
	}
	for kind, want := range map[string]float64{"stream": 1, "run": 1, "weights": 0} {
		if got := count(t, metrics, "rondo_retention_removed_total", kind); got != want {
			t.Errorf("%g of kind %s are removed, want %g", got, kind, want)
		}
	}
	if told := lines.String(); strings.Count(told, "run forgotten") != 1 || !strings.Contains(told, "run=old") ||
		strings.Count(told, "retention removed") < 1 || strings.Contains(told, "failed") {
		t.Errorf("it says\n%s", told)
	}
	if err := log.Store().Put(t.Context(), "runs/elses/log/000001-000002.arrow",
		[]byte("of another server")); err != nil {
		t.Fatal(err)
	}
	r.round(t.Context())
	if got := count(t, metrics, "rondo_retention_rounds_total", "failed"); got != 1 ||
		!strings.Contains(lines.String(), "retention failed") {
		t.Errorf("%g rounds have failed:\n%s", got, lines.String())
	}
}

// TestRetentionIsSaid: a plane says what it keeps, and what changes that.
func TestRetentionIsSaid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "retention.yaml")
	if err := os.WriteFile(file, []byte("retention: {archives: 48h, max_bytes: 5GiB, keep_runs: 3}"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"":    `archived_streams_of_closed_runs="6h0m0s, and the newest 20" archives=kept weights=kept change="--retention FILE or off"`,
		"off": `archived_streams_of_closed_runs=kept archives=kept weights=kept change="--retention FILE or off"`,
		file:  `archived_streams_of_closed_runs=kept archives="48h0m0s, and the newest 3, at most 5GiB" weights=kept change="--retention FILE or off"`,
	} {
		policy, err := policyOf(flag)
		if err != nil {
			t.Fatal(err)
		}
		var line bytes.Buffer
		slog.New(slog.NewTextHandler(&line, nil)).Info("retention", terms(policy)...)
		if !strings.HasSuffix(strings.TrimSpace(line.String()), "msg=retention "+want) ||
			(policy == nil) != (flag == "off") {
			t.Errorf("--retention %q says %s", flag, line.String())
		}
	}
}

// count is the value of a counter with a label.
func count(t *testing.T, metrics *prometheus.Registry, name, label string) (sum float64) {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
