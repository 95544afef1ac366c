package querysampler

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/pipeline"
)

// metrics of runs. Their label run is that of open runs: the series of a run end when this
// process decides in it no more.
type metrics struct {
	rollouts, failures, turns, tokens, completed, dropped, batches *prometheus.CounterVec
	fateRollouts, fateTokens                                       *prometheus.CounterVec
	reward, staleness                                              *prometheus.HistogramVec
	inFlight, oldest, paused, version, limit                       *prometheus.GaugeVec
	batchReward, batchStaleness                                    *prometheus.GaugeVec
	logBytes, logLimit                                             *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		rollouts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_rollouts_total",
			Help: "Rollouts of a run by outcome: scored, failed."}, []string{"run", "outcome"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_rollout_failures_total",
			Help: "Failed rollouts by the service that gave up and the kind of cause."},
			[]string{"run", "stage", "class"}),
		turns: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_turns_total",
			Help: "Sampled turns of a run."}, []string{"run"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_tokens_total",
			Help: "Tokens of sampled turns: prompt, sampled."}, []string{"run", "kind"}),
		completed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_groups_completed_total",
			Help: "Groups all of whose rollouts have an outcome."}, []string{"run"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_groups_dropped_total",
			Help: "Groups that a feed does not train on, by reason: stale, filtered."},
			[]string{"run", "feed", "reason"}),
		batches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_batches_total",
			Help: "Batches of a feed."}, []string{"run", "feed"}),
		fateRollouts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_fate_rollouts_total",
			Help: "Finished rollouts of the groups that the first feed has batched or dropped."},
			[]string{"run", "fate"}),
		fateTokens: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rondo_fate_tokens_total",
			Help: "Tokens of these rollouts. Dropped rollouts that are longer on average bias what is trained on."},
			[]string{"run", "fate"}),
		reward: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rondo_rollout_reward",
			Help:    "Rewards of scored rollouts.",
			Buckets: []float64{-1, 0, 0.25, 0.5, 0.75, 1}}, []string{"run"}),
		staleness: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "rondo_turn_staleness_versions",
			Help:    "Published versions that the version of a sampled turn is behind; turns whose version nobody reported are left out.",
			Buckets: []float64{0, 1, 2, 4, 8, 16, 32}}, []string{"run"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_rollouts_in_flight",
			Help: "Rollouts without an outcome."}, []string{"run"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_rollout_oldest_seconds",
			Help: "Age of the oldest rollout in flight."}, []string{"run"}),
		paused: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_run_paused",
			Help: "1 while the run is paused, 0 while it opens groups."}, []string{"run"}),
		version: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_policy_version",
			Help: "The last published policy version in the run."}, []string{"run"}),
		limit: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_staleness_limit_versions",
			Help: "The staleness that the run allows (staleness.max)."}, []string{"run"}),
		batchReward: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_batch_reward",
			Help: "Mean reward of the last batch of a feed."}, []string{"run", "feed"}),
		batchStaleness: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_batch_staleness_versions",
			Help: "Policy versions that the oldest rollout of the last batch of a feed was behind."},
			[]string{"run", "feed"}),
		logBytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_log_bytes",
			Help: "Bytes that the run's stream holds."}, []string{"run"}),
		logLimit: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "rondo_log_limit_bytes",
			Help: "Bytes that the run's stream may hold."}, []string{"run"}),
	}
	err := errors.Join(
		shared(r, &m.rollouts, &m.failures, &m.turns, &m.tokens, &m.completed, &m.dropped, &m.batches,
			&m.fateRollouts, &m.fateTokens),
		shared(r, &m.reward, &m.staleness),
		shared(r, &m.inFlight, &m.oldest, &m.paused, &m.version, &m.limit, &m.batchReward, &m.batchStaleness,
			&m.logBytes, &m.logLimit),
	)
	return m, err
}

func shared[C prometheus.Collector](r prometheus.Registerer, list ...*C) (err error) {
	for _, c := range list {
		if *c, err = pipeline.ShareMetric(r, *c); err != nil {
			return err
		}
	}
	return nil
}

// ofRuns is a metric with the label run.
type ofRuns interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

func (m *metrics) all() []ofRuns {
	return []ofRuns{
		m.rollouts, m.failures, m.turns, m.tokens, m.completed, m.dropped, m.batches, m.fateRollouts,
		m.fateTokens, m.reward, m.staleness,
		m.inFlight, m.oldest, m.paused, m.version, m.limit, m.batchReward, m.batchStaleness, m.logBytes, m.logLimit,
	}
}

// forget ends the series of a run.
func (m *metrics) forget(run string) {
	for _, c := range m.all() {
		c.DeletePartialMatch(prometheus.Labels{"run": run})
	}
}
