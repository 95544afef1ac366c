package schedules

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/tests/nightly"
)

// atOnce bounds the schedules that run at the same time.
const atOnce = 4

// TestEveryBatchCountsOnce runs dozens of trainings at a staleness of 0 to 2, each with its own
// deaths of trainer and feeder. Two of them have checkpoints that are fifty steps apart: what was
// consumed may be far ahead of them, and the feed must not starve for that.
func TestEveryBatchCountsOnce(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := newPlane(t)
		died := &deaths{count: map[string]int{}}
		work, ctx := errgroup.WithContext(t.Context())
		work.SetLimit(atOnce)
		var mu sync.Mutex
		lives, redelivered := 0, 0
		for seed := range uint64(nightly.Count(26, 50)) {
			dir := filepath.Join(t.TempDir(), "feeder")
			work.Go(func() error {
				tr, err := p.schedule(ctx, seed, dir, died)
				if err != nil {
					return fmt.Errorf("schedule %d: %w", seed, err)
				}
				mu.Lock()
				defer mu.Unlock()
				lives, redelivered = lives+tr.lives, redelivered+tr.redelivered
				return nil
			})
		}
		if err := work.Wait(); err != nil {
			t.Fatal(err)
		}
		for _, where := range []string{"trainer before consumed", "trainer after consumed", "trainer before checkpoint",
			"trainer before checkpointed",
			"trainer after checkpointed", "feeder before batch.ready", "feeder after batch.ready"} {
			if died.count[where] < nightly.Count(2, 5) {
				t.Errorf("%d deaths of the %s: the schedules show nothing", died.count[where], where)
			}
		}
		t.Logf("%d lives of trainers, %d batches delivered again, deaths: %v", lives, redelivered, died.count)
	})
}

// patience is how much virtual time a training may take. One that starves takes for ever.
const patience = time.Hour

// schedule is one training.
func (p plane) schedule(ctx context.Context, seed uint64, dir string, died *deaths) (*trainer, error) {
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
	run, rng := fmt.Sprintf("schedule-%d", seed), random(0)
	tr := &trainer{plane: p, run: run, rng: random(1), died: died, seen: map[int64]string{}}
	tr.steps, tr.every = 3+rng.Int64N(4), 1+rng.Int64N(3)
	if seed%25 == 0 {
		tr.steps, tr.every = 52, 50
	}
	cfg := runfile.DefaultRunConfig()
	cfg.Policy, cfg.Endpoint, cfg.Seed, cfg.Steps, cfg.GroupSize = "policy", runfile.BuiltinEndpoint,
		int64(seed), tr.steps, 2
	// Groups have eight tokens, four where a member failed: a batch is two groups, or as
	// many as twenty tokens hold.
	cfg.Feeds = []runfile.Feed{{Name: feedName, GroupsPerBatch: 2, Ranks: 1 + rng.IntN(2),
		TokensPerBatch: 20 * rng.Int64N(2), MicroBatch: &runfile.MicroBatch{Tokens: 8}}}
	if passed := 1.0; seed%5 == 0 { // somebody else's feed at its own pace, and one that nobody consumes
		cfg.Feeds = append(cfg.Feeds, runfile.Feed{Name: "sft", GroupsPerBatch: 3, MinReward: &passed},
			runfile.Feed{Name: "shadow", GroupsPerBatch: 1})
	}
	cfg.Limits.HopelessGroups = 0 // groups of two fail often enough here to look hopeless
	cfg.InFlight, cfg.Staleness = 0, runfile.Staleness{Max: rng.Int64N(3),
		Policy: []string{runfile.StaleDrop, runfile.StaleWait, runfile.StaleKeep}[rng.IntN(3)]}
	cfg.Filters.ZeroVariance = rng.IntN(4) == 0
	cfg.Tasks = []runfile.TaskSpec{{Name: "task", Workdir: "/w", Snapshot: p.blob, Tests: p.blob,
		Verifier: runfile.VerifierSeparate}}
	if err := p.open(ctx, run, cfg); err != nil {
		return nil, err
	}
	life, end := context.WithTimeout(ctx, patience)
	defer end()
	beside, life := errgroup.WithContext(life)
	beside.Go(func() error { return alive(life, p.outcomes(life, run, random(2))) })
	beside.Go(func() error { return alive(life, p.feeder(life, run, dir, random(3), died)) })
	final, err := tr.live(life)
	end()
	if besides := beside.Wait(); besides != nil {
		return nil, besides
	}
	if err != nil {
		return nil, fmt.Errorf("%+v: after %d of %d steps: %w\n%s", cfg.Staleness, len(tr.seen),
			tr.steps, err, p.tail(run))
	}
	return tr, p.verify(ctx, run, cfg, tr, final)
}

// tail lists the last facts of a run.
func (p plane) tail(run string) string {
	var lines []string
	for e, err := range p.log.All(context.Background(), run, 1) {
		if err != nil {
			return err.Error()
		}
		lines = append(lines, fmt.Sprintf("%d %s %s %.200s", e.Seq, e.Time.Format(time.TimeOnly), e.ID, e.Data))
	}
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// alive drops what an error says that the end of the context caused.
func alive(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// verify holds the final weights against the log, the log against its promises, and every batch
// against a feeder that decides it anew.
func (p plane) verify(ctx context.Context, run string, cfg runfile.RunConfig, tr *trainer, final weights) error {
	want := weights{}.clone()
	for step := range tr.steps {
		digest, ok := tr.seen[step+1]
		if !ok {
			return fmt.Errorf("step %d was never delivered", step+1)
		}
		want.train(step+1, digest)
	}
	for step, n := range final.Batches {
		if n != 1 {
			return fmt.Errorf("step %d counts %d times in the final weights", step, n)
		}
	}
	if len(final.Batches) != int(tr.steps) || final.Chain != want.Chain {
		return fmt.Errorf("the final weights are made of %d batches in another order than %d undisturbed steps",
			len(final.Batches), tr.steps)
	}
	report, err := audit.Check(ctx, p.log.Reader, run)
	if err != nil {
		return err
	}
	if len(report.Findings) > 0 {
		return fmt.Errorf("the log breaks its promises: %v", report.Findings)
	}
	var differs []pipeline.Difference
	again := pipeline.Verification{
		Log: p.log.Reader, Run: run,
		Deciders: map[string]map[string]pipeline.Decider{topology.TrainerFeeder: trainerfeeder.Deciders(run, cfg,
			p.log.Store())},
		Report: func(d pipeline.Difference) { differs = append(differs, d) },
	}
	checked, err := again.Verify(ctx)
	if err != nil {
		return err
	}
	if len(differs) > 0 || len(checked) != len(cfg.Feeds) {
		return fmt.Errorf("%v facts decided again, these differ: %+v", checked, differs)
	}
	for feed, n := range checked {
		if n == 0 {
			return fmt.Errorf("no fact of %s was decided again", feed)
		}
	}
	return nil
}
