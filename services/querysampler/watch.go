package querysampler

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage/projection"
)

// watcher keeps the metrics of runs, and logs a line for each run and minute in
// which something happened.
type watcher struct {
	log     eventlog.Reader
	logger  *slog.Logger
	metrics *metrics

	mu   sync.Mutex
	runs map[string]*watched
}

// lineEvery is how often a run is logged.
const lineEvery = time.Minute

// watched is a run in which this process decides.
type watched struct {
	started map[string]time.Time // rollouts in flight whose start was seen
	groups  map[string]size      // that the first feed has not taken or dropped
	feed    string               // the first one
	version int64
	sizing  bool // the server is asked for the size of the stream

	since    time.Time // of the last line
	counts   counts
	inFlight int
	oldest   time.Duration
}

// size is what is known of the rollouts of a group.
type size struct{ rollouts, tokens int }

// counts are what happened since the last line.
type counts struct {
	started, scored, failed, turns, batches int
	rewards                                 float64
}

func newWatcher(env pipeline.Env) (*watcher, error) {
	m, err := newMetrics(env.Metrics)
	if err != nil {
		return nil, err
	}
	return &watcher{log: env.Log.Reader, logger: env.Logger, metrics: m, runs: map[string]*watched{}}, nil
}

// run is a run; the caller holds mu.
func (w *watcher) run(run string) *watched {
	r := w.runs[run]
	if r == nil {
		r = &watched{started: map[string]time.Time{}, groups: map[string]size{}, since: time.Now()}
		w.runs[run] = r
	}
	return r
}

// Event implements pipeline.Watcher. What cannot be read the decider complains about.
func (w *watcher) Event(run string, e events.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.run(run)
	switch e.Type {
	case events.RolloutStartedType:
		r.started[e.Entity] = e.Time
		r.counts.started++
	case events.TurnSampledType:
		w.sampled(run, r, e)
	case events.RolloutFinishedType:
		if done, err := events.Data[events.RolloutFinished](e); err == nil {
			group := r.groups[events.GroupOf(e.Entity)]
			r.groups[events.GroupOf(e.Entity)] = size{group.rollouts + 1, group.tokens + done.Tokens}
		}
	case events.RolloutScoredType:
		if scored, err := events.Data[events.RolloutScored](e); err == nil {
			delete(r.started, e.Entity)
			r.counts.scored++
			w.metrics.rollouts.WithLabelValues(run, "scored").Inc()
			if !math.IsNaN(scored.Reward) {
				r.counts.rewards += scored.Reward
				w.metrics.reward.WithLabelValues(run).Observe(scored.Reward)
			}
		}
	case events.RolloutFailedType:
		if failed, err := events.Data[events.RolloutFailed](e); err == nil {
			delete(r.started, e.Entity)
			r.counts.failed++
			w.metrics.rollouts.WithLabelValues(run, "failed").Inc()
			w.metrics.failures.WithLabelValues(run, failed.Stage, failed.Class).Inc()
		}
	default:
		w.group(run, r, e)
	}
}

// group counts what becomes of groups, and new versions.
func (w *watcher) group(run string, r *watched, e events.Event) {
	switch e.Type {
	case events.GroupCompletedType:
		w.metrics.completed.WithLabelValues(run).Inc()
	case events.GroupDroppedType:
		if drop, err := events.Data[events.GroupDropped](e); err == nil {
			w.metrics.dropped.WithLabelValues(run, drop.Feed, drop.Reason).Inc()
			w.fate(run, r, drop.Feed, "dropped", e.Entity)
		}
	case events.BatchReadyType:
		if batch, err := events.Data[events.BatchReady](e); err == nil {
			r.counts.batches++
			w.metrics.batches.WithLabelValues(run, e.Entity).Inc()
			w.metrics.batchReward.WithLabelValues(run, e.Entity).Set(batch.RewardMean)
			w.metrics.batchStaleness.WithLabelValues(run, e.Entity).Set(float64(batch.Staleness))
			w.fate(run, r, e.Entity, "batched", batch.Groups...)
		}
	case events.WeightsPublishedType:
		if published, err := events.Data[events.WeightsPublished](e); err == nil {
			r.version = max(r.version, published.Version)
			w.metrics.version.WithLabelValues(run).Set(float64(r.version))
		}
	}
}

// sampledTurn is the part of a turn that is counted: not its tokens, which take long to read.
type sampledTurn struct {
	PolicyVersion    int64 `json:"policy_version"`
	PromptTokens     int   `json:"prompt_tokens"`
	CompletionTokens int   `json:"completion_tokens"`
}

func (w *watcher) sampled(run string, r *watched, e events.Event) {
	turn, err := events.Data[sampledTurn](e)
	if err != nil {
		return
	}
	r.counts.turns++
	w.metrics.turns.WithLabelValues(run).Inc()
	w.metrics.tokens.WithLabelValues(run, "prompt").Add(float64(max(0, turn.PromptTokens)))
	w.metrics.tokens.WithLabelValues(run, "sampled").Add(float64(max(0, turn.CompletionTokens)))
	if turn.PolicyVersion >= 0 {
		w.metrics.staleness.WithLabelValues(run).Observe(float64(max(0, r.version-turn.PolicyVersion)))
	}
}

// fate counts the rollouts of groups that the first feed has batched or dropped.
func (w *watcher) fate(run string, r *watched, feed, fate string, groups ...string) {
	if feed != r.feed {
		return
	}
	for _, id := range groups {
		w.metrics.fateRollouts.WithLabelValues(run, fate).Add(float64(r.groups[id].rollouts))
		w.metrics.fateTokens.WithLabelValues(run, fate).Add(float64(r.groups[id].tokens))
		delete(r.groups, id)
	}
}

// State implements pipeline.Watcher.
func (w *watcher) State(ctx context.Context, run string, decider pipeline.Decider, v projection.View, now time.Time) {
	s, _, err := projection.Get[state](v, stateKey)
	if err != nil {
		return
	}
	d := decider.(*Decider)
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.run(run)
	r.feed, r.version = d.feed.Name, max(r.version, s.PolicyVersion)
	r.inFlight, r.oldest = 0, 0
	for f, err := range projection.Scan[inFlight](v, flying) {
		if err != nil {
			return
		}
		began, seen := r.started[f.ID]
		if !seen {
			began = f.Deadline.Add(-time.Duration(d.cfg.Limits.Timeout)) // as the sampler sets deadlines
		}
		r.inFlight++
		r.oldest = max(r.oldest, now.Sub(began))
	}
	paused := 0.0
	if s.Paused {
		paused = 1
	}
	w.metrics.inFlight.WithLabelValues(run).Set(float64(r.inFlight))
	w.metrics.oldest.WithLabelValues(run).Set(r.oldest.Seconds())
	w.metrics.paused.WithLabelValues(run).Set(paused)
	w.metrics.version.WithLabelValues(run).Set(float64(r.version))
	w.metrics.limit.WithLabelValues(run).Set(float64(d.cfg.Staleness.Max))
	if !r.sizing {
		r.sizing = true
		go w.size(context.WithoutCancel(ctx), run, r)
	}
	w.line(run, r, s, now)
}

// line logs how a run goes, unless nothing has happened.
func (w *watcher) line(run string, r *watched, s state, now time.Time) {
	if now.Sub(r.since) < lineEvery {
		return
	}
	if r.counts != (counts{}) {
		mean := 0.0
		if r.counts.scored > 0 {
			mean = r.counts.rewards / float64(r.counts.scored)
		}
		w.logger.Info("run progress", "run", run, "started", r.counts.started, "scored", r.counts.scored,
			"failed", r.counts.failed, "turns", r.counts.turns,
			"batches", r.counts.batches, "reward_mean", math.Round(float64(mean*1000))/1000, "in_flight", r.inFlight,
			"oldest", r.oldest.Round(time.Second),
			"policy_version", r.version, "paused", s.Paused)
	}
	r.counts, r.since = counts{}, now
}

// sizeFor bounds how long the server is asked for a stream's size.
const sizeFor = 5 * time.Second

// size asks how large the run's stream is, beside the decider.
func (w *watcher) size(ctx context.Context, run string, r *watched) {
	ctx, cancel := context.WithTimeout(ctx, sizeFor)
	defer cancel()
	bytes, most, err := w.log.Size(ctx, run)
	w.mu.Lock()
	defer w.mu.Unlock()
	r.sizing = false
	if err != nil || w.runs[run] != r {
		return
	}
	w.metrics.logBytes.WithLabelValues(run).Set(float64(bytes))
	w.metrics.logLimit.WithLabelValues(run).Set(float64(most))
}

// Leave implements pipeline.Watcher.
func (w *watcher) Leave(run string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runs, run)
	w.metrics.forget(run)
}
