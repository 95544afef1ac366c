package up

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/gc"
	"github.com/rondo-rl/rondo/retry"
)

// firstRound is how long after its start a plane looks for the first time: one that starts every
// morning should, too, and not while everything else begins.
const firstRound = time.Minute

// policyOf is what the flag asks for; nil removes nothing.
func policyOf(flag string) (*gc.Policy, error) {
	switch flag {
	case "":
		policy := gc.DefaultPolicy()
		return &policy, nil
	case "off":
		return nil, nil
	}
	policy, err := gc.ReadPolicy(flag)
	if err != nil {
		return nil, err
	}
	return &policy, nil
}

// terms say in the log what is kept, and how to change that.
func terms(p *gc.Policy) []any {
	if p == nil {
		p = &gc.Policy{}
	}
	kept := func(d runfile.Duration, newest int) string {
		switch {
		case d == 0:
			return "kept"
		case newest > 0:
			return fmt.Sprintf("%s, and the newest %d", time.Duration(d), newest)
		}
		return time.Duration(d).String()
	}
	archives := kept(p.Archives, p.KeepRuns)
	if p.MaxBytes > 0 {
		archives += fmt.Sprintf(", at most %s", p.MaxBytes)
	}
	weights := kept(p.Weights, p.KeepWeights)
	return []any{"archived_streams_of_closed_runs", kept(p.Streams, p.KeepStreams), "archives", archives, "weights",
		weights, "change", "--retention FILE or off"}
}

// retainer does again and again what a plane's retention says.
type retainer struct {
	log     *eventlog.Log
	policy  gc.Policy
	logger  *slog.Logger
	rounds  *prometheus.CounterVec
	removed *prometheus.CounterVec
	freed   prometheus.Counter
}

func newRetainer(log *eventlog.Log, policy gc.Policy, l *slog.Logger,
	metrics prometheus.Registerer) (*retainer, error) {
	r := &retainer{
		log: log, policy: policy, logger: l,
		rounds: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_retention_rounds_total",
			Help: "Rounds of retention by outcome: done, failed."}, []string{"outcome"}),
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_retention_removed_total",
			Help: "What retention has removed, by kind: stream, run, weights, object."}, []string{"kind"}),
		freed: prometheus.NewCounter(prometheus.CounterOpts{Name: "rondo_retention_freed_bytes_total",
			Help: "Bytes of the objects that retention has deleted."}),
	}
	for _, c := range []prometheus.Collector{r.rounds, r.removed, r.freed} {
		if err := metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// run makes rounds until the context ends. A round that fails is made again at the next time: what
// it has removed is removed, and nothing depends on when the rest goes.
func (r *retainer) run(ctx context.Context) {
	every := time.Duration(r.policy.Every)
	for wait := min(every, firstRound); retry.Sleep(ctx, wait); wait = every {
		r.round(ctx)
	}
}

func (r *retainer) round(ctx context.Context) {
	report, err := gc.Retain(ctx, r.log, r.policy, &gc.Collector{}, true)
	r.tell(report)
	switch {
	case err == nil:
		r.rounds.WithLabelValues("done").Inc()
	case ctx.Err() == nil:
		r.rounds.WithLabelValues("failed").Inc()
		r.logger.Warn("retention failed", "retry_in", time.Duration(r.policy.Every), "error", err)
	}
}

// tell logs and counts what a round has removed, also one that failed later on.
func (r *retainer) tell(report gc.Report) {
	streams, runs, versions := []string{}, []string{}, 0
	for _, run := range report.Runs {
		if run.Deleted {
			streams = append(streams, run.Run)
		}
	}
	for _, run := range report.Forgotten {
		if run.Forgotten {
			runs = append(runs, run.Run)
			r.logger.Info("run forgotten", "run", run.Run,
				"closed", run.Closed.UTC().Format(time.RFC3339), "reason", run.Reason)
		}
	}
	objects, freed := int64(0), int64(0)
	for _, policy := range report.Weights {
		for _, v := range policy.Versions {
			if v.Collected {
				versions++
			}
		}
		objects, freed = objects+int64(policy.Deleted), freed+policy.Freed
	}
	for _, kind := range report.Kinds {
		objects, freed = objects+kind.Deleted, freed+kind.Freed
	}
	for kind, n := range map[string]int64{"stream": int64(len(streams)), "run": int64(len(runs)),
		"weights": int64(versions), "object": objects} {
		r.removed.WithLabelValues(kind).Add(float64(n))
	}
	r.freed.Add(float64(freed))
	if len(streams)+len(runs)+versions > 0 || objects > 0 {
		r.logger.Info("retention removed", "streams", streams, "runs", runs, "weight_versions", versions,
			"objects", objects, "bytes", freed)
	}
}
