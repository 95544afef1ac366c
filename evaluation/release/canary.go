package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
)

// maxSources bounds the runs of a canary.
const maxSources = 256

// readCanary reads the rollouts that a promotion has divided, in the runs and up to the
// sequences that a judgement names.
func readCanary(ctx context.Context, log eventlog.Reader, policy string,
	j events.WeightsJudged) (version, against []evaluation.Attempt, err error) {
	given, err := log.Event(ctx, events.Catalogue, j.Promotion)
	if err != nil {
		return nil, nil, fmt.Errorf("the promotion at sequence %d: %w", j.Promotion, err)
	}
	p, err := events.Data[events.WeightsPromoted](given)
	if err != nil {
		return nil, nil, err
	}
	if given.Entity != policy || p.Version != j.Version || p.Before != j.Against || p.Share == 0 {
		return nil, nil, fmt.Errorf("sequence %d gives no share to version %d of %s beside version %d", j.Promotion,
			j.Version, policy, j.Against)
	}
	for _, source := range j.Sources {
		f, err := evaluation.ReadThrough(ctx, log, source.Run, source.Through)
		if err != nil {
			return nil, nil, err
		}
		if !produces(f.Config, policy) {
			return nil, nil, fmt.Errorf("run %s is not in production with policy %s", source.Run, policy)
		}
		a, b := f.Sides(p, given.Time)
		version, against = append(version, a...), append(against, b...)
	}
	return version, against, nil
}

// produces reports whether a run's rollouts get their version by promotions.
// Evaluations are no production.
func produces(cfg runfile.RunConfig, policy string) bool {
	return cfg.Policy == policy && cfg.PolicyVersion == nil && cfg.Epochs == 0
}

// Production counts the rollouts that a promotion has divided, as they come.
type Production struct {
	log    eventlog.Reader
	policy string
	given  Fact[events.WeightsPromoted]
	only   []string
	runs   map[string]*evaluation.Recorded
	passed map[string]bool // runs that are none of the policy's
}

// NewProduction watches the runs that are named, or all that produce with the policy.
func NewProduction(log eventlog.Reader, policy string, given Fact[events.WeightsPromoted], only []string) *Production {
	return &Production{log: log, policy: policy, given: given, only: only, runs: map[string]*evaluation.Recorded{},
		passed: map[string]bool{}}
}

// Count reads what has come, and counts the outcomes of the version and of the other one.
func (p *Production) Count(ctx context.Context) (version, against int, err error) {
	names := p.only
	if len(names) == 0 {
		if names, err = p.log.Runs(ctx); err != nil {
			return 0, 0, err
		}
	}
	for _, name := range names {
		if err := p.read(ctx, name); err != nil {
			return 0, 0, err
		}
	}
	for _, f := range p.runs {
		a, b := f.Sides(p.given.Data, p.given.Time)
		version, against = version+len(a), against+len(b)
	}
	return version, against, nil
}

func (p *Production) read(ctx context.Context, name string) error {
	f := p.runs[name]
	if f == nil && !p.passed[name] {
		cfg, err := p.log.RecordedConfig(ctx, name)
		if errors.Is(err, eventlog.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if !produces(cfg, p.policy) {
			if p.passed[name] = true; len(p.only) > 0 {
				return fmt.Errorf("run %s is not in production with policy %s: it has another policy, pins a version, or is an evaluation", name, p.policy)
			}
			return nil
		}
		f = evaluation.NewRecorded(name)
	}
	if f == nil {
		return nil
	}
	p.runs[name] = f
	for e, err := range p.log.All(ctx, name, f.LastSeq+1) {
		if err == nil {
			err = f.Take(e)
		}
		if err != nil {
			delete(p.runs, name) // a stream that was made again is read anew
			return err
		}
	}
	return nil
}

// Sources are the runs that have rollouts of the promotion, as far as they were read.
func (p *Production) Sources() (list []events.JudgedSource, err error) {
	for name, f := range p.runs {
		if a, b := f.Sides(p.given.Data, p.given.Time); len(a)+len(b) > 0 {
			list = append(list, events.JudgedSource{Run: name, Through: f.LastSeq})
		}
	}
	slices.SortFunc(list, func(a, b events.JudgedSource) int { return strings.Compare(a.Run, b.Run) })
	if len(list) > maxSources {
		return nil, fmt.Errorf("%d runs have rollouts of the canary: name at most %d", len(list), maxSources)
	}
	return list, nil
}
