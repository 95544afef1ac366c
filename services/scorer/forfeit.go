package scorer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/fault"
	"github.com/rondo-rl/rondo/sandbox/verifier"
)

// tested is what a rollout's tests came to, with what they ran over.
type tested struct {
	verifier.Outcome
	flags   []string
	forfeit *events.Forfeit
	spec    verifier.Spec
}

// test runs a task's tests. Where they give no verdict by the agent's doing, that is a forfeit, and
// the outcome has components of 0. Where they give none over the task's snapshot either, they are
// broken, and the error says so.
func (s *Service) test(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	spec verifier.Spec) (verifier.Outcome, *events.Forfeit, error) {
	outcome, err := s.runTests(ctx, cfg, task, spec)
	if err == nil || ctx.Err() != nil {
		return outcome, nil, err
	}
	class, unclear := fault.ClassOf(err), fault.Unclear(err) && r.Tries+1 >= cfg.Limits.Tries
	if unclear {
		class = verifier.ClassSandbox
	}
	if class == "" {
		return outcome, nil, err
	}
	if broken := s.control(ctx, cfg, task, spec, unclear); broken != nil {
		return outcome, nil, brokenTests(broken, err)
	}
	outcome.Components = cfg.Scorer.Unreported(nil)
	maps.DeleteFunc(outcome.Components, func(name string, _ float64) bool { return runfile.MadeByScorer(name) })
	return outcome, forfeit(class, err), nil
}

// forfeit says of an error that it is the agent's doing.
func forfeit(class string, cause error) *events.Forfeit {
	if v := (*verifier.Error)(nil); errors.As(cause, &v) {
		cause = withLog(v)
	}
	return events.NewForfeit(class, cause)
}

// forfeited is the verdict on a forfeited rollout. Its effort and its change count as far
// as they can be measured.
func (s *Service) forfeited(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	t tested) (scored events.RolloutScored, log []byte, err error) {
	left := work{snapshot: t.spec.Snapshot, change: t.spec.Changes}
	if cfg.Scorer.Hygiene() {
		if left.brought, err = s.brought(ctx, r, t.spec.Snapshot); err != nil {
			return scored, nil, err
		}
	}
	components, err := measure(cfg.Scorer, r, left, t.Components)
	if errors.Is(err, sandbox.ErrSource) {
		return scored, nil, err
	}
	if err != nil { // the change is no archive
		bare := cfg.Scorer
		bare.Weights = nil
		if components, err = measure(bare, r, left, t.Components); err != nil {
			return scored, nil, err
		}
	}
	components = cfg.Scorer.Unreported(components)
	scored = stated(task, r, t.Outcome, t.flags)
	scored.Components, scored.Forfeit = components, t.forfeit
	if scored.Reward, err = cfg.Scorer.Forfeited(components); err != nil {
		return scored, nil, &verifier.Error{Class: verifier.ClassBadReward, Err: err, Log: t.Log}
	}
	return scored, t.Log, nil
}

// flagsOf are the flags of a rollout or of a stage. A change that cannot be read, as some of a
// forfeit cannot, has none of its own.
func flagsOf(change sandbox.Source, begun map[string]string, r *events.Rollout, turns []events.TurnSampled,
	outcome verifier.Outcome, forfeit *events.Forfeit) ([]string, error) {
	flags, err := suspicions(change, begun, turns, outcome)
	if err != nil && forfeit != nil && !errors.Is(err, sandbox.ErrSource) {
		flags, err = suspicions(nil, begun, turns, outcome)
	}
	lost := flagged{}
	for _, turn := range turns {
		if why := r.Tools.Answer(turn.Turn).Lost; why != "" {
			lost.add(runfile.FlagLost, fmt.Sprintf("turn %d: %s", turn.Turn, why))
		}
	}
	flags = append(flags, lost.list()...)
	slices.Sort(flags)
	if forfeit != nil {
		flags = withFlag(flags, *forfeit)
	}
	return flags[:min(len(flags), maxFlags)], err
}

// withFlag adds a forfeit to flags, at the cost of another where there are too many.
func withFlag(flags []string, f events.Forfeit) []string {
	flags = append(flags[:min(len(flags), maxFlags-1)], f.Flag())
	slices.Sort(flags)
	return slices.Compact(flags)
}

// controls are the tests, by what they are made of, that have given a verdict over their task's
// snapshot on this machine, or have given none.
type controls struct {
	mu    sync.Mutex
	known map[string]*controlled
}

// controlled is one control: who wants it waits for who runs it.
type controlled struct {
	mu   sync.Mutex
	done bool
	err  error
}

// maxControls bounds how many are remembered.
const maxControls = 1000

func (c *controls) entry(key string) *controlled {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxControls {
		c.known = map[string]*controlled{}
	}
	if c.known[key] == nil {
		c.known[key] = &controlled{}
	}
	return c.known[key]
}

// control runs the tests over the task's snapshot, once, or anew. It is nil where
// they give a verdict there.
func (s *Service) control(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec,
	spec verifier.Spec, anew bool) error {
	c := s.controls.entry(testsKey(task))
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done || anew {
		spec.Changes = nil
		_, err := s.runTests(ctx, cfg, task, spec)
		if err != nil && (ctx.Err() != nil || NoVerdict(err) == nil) {
			return fmt.Errorf("try the tests over the snapshot: %w", err) // it says nothing: the machine failed
		}
		c.done, c.err = true, err
	}
	return c.err
}

// brokenTests is the error of tests that give no verdict, whatever the agent does, or of the
// machine that could not find that out.
func brokenTests(over, cause error) error {
	v, here := NoVerdict(over), NoVerdict(cause)
	switch {
	case v == nil:
		return over
	case here == nil:
		return cause
	}
	return &verifier.Error{Class: here.Class, Log: here.Log,
		Err: fmt.Errorf("%w (and over the task's untouched snapshot: %w)", here.Err, v.Err)}
}
