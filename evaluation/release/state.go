package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// Options are when and how versions are released.
type Options struct {
	// Every is how long after a judgement the next version is due, and Versions how many must be
	// published since. Whichever comes first counts; without both each version is due.
	Every    time.Duration
	Versions int
	// Share of the rollouts in production that a version gets which has passed its
	// gate; 0 promotes it at once.
	Share float64
}

// Fact is a payload with the event that it came in.
type Fact[T any] struct {
	ID   string
	Seq  uint64
	Time time.Time
	Data T
}

// State is what the log says of a policy's releases. All decisions follow from it, so whoever is
// started anew goes on where the last one was.
type State struct {
	Seq       uint64  // of the last event that was read
	published []int64 // in order
	promoted  *Fact[events.WeightsPromoted]
	judged    []Fact[events.WeightsJudged]
	takenBack int64 // the newest version that was rolled back
}

// Kinds of steps.
const (
	Wait    = "wait"    // for an event, or until a time
	Gate    = "gate"    // judge a version by an evaluation
	Canary  = "canary"  // judge a version by rollouts in production
	Promote = "promote" // state a promotion
)

// Step is what is to be done next.
type Step struct {
	Kind             string
	Version, Against int64
	Why              string                       // of a wait
	Promotion        events.WeightsPromoted       // to be stated
	ID               string                       // of its submission
	Given            Fact[events.WeightsPromoted] // of a canary: what gave it its share
}

// Read takes what the policy's chain has gained.
func (s *State) Read(ctx context.Context, log eventlog.Reader, policy string) error {
	kind := events.WeightsPublishedType.Kind()
	last, err := log.Last(ctx, events.Catalogue, kind, policy)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil
	}
	if err != nil || last.Seq <= s.Seq {
		return err
	}
	err = log.Follow(ctx, events.Catalogue, s.Seq+1, events.Chain(events.Catalogue, kind, policy),
		func(e events.Event) error {
			if err := s.Take(e); err != nil {
				return err
			}
			if e.Seq >= last.Seq {
				return errRead
			}
			return nil
		})
	if errors.Is(err, errRead) {
		return nil
	}
	return err
}

var errRead = errors.New("the chain is read")

// Take folds the next event of the policy's chain.
func (s *State) Take(e events.Event) error {
	if e.Seq <= s.Seq {
		return nil
	}
	switch e.Type {
	case events.WeightsPublishedType:
		p, err := events.Data[events.WeightsPublished](e)
		if err != nil {
			return err
		}
		s.published = append(s.published, p.Version)
	case events.WeightsPromotedType:
		p, err := events.Data[events.WeightsPromoted](e)
		if err != nil {
			return err
		}
		s.promoted = &Fact[events.WeightsPromoted]{e.ID, e.Seq, e.Time, p}
		s.takenBack = max(s.takenBack, p.RolledBack)
	case events.WeightsJudgedType:
		j, err := events.Data[events.WeightsJudged](e)
		if err != nil {
			return err
		}
		s.judged = append(s.judged, Fact[events.WeightsJudged]{e.ID, e.Seq, e.Time, j})
	}
	s.Seq = e.Seq
	return nil
}

// Judged are the judgements so far, in order.
func (s *State) Judged() []Fact[events.WeightsJudged] { return s.judged }

// Find is a judgement by its ordinal.
func (s *State) Find(ordinal string) (Fact[events.WeightsJudged], bool) {
	i := slices.IndexFunc(s.judged, func(j Fact[events.WeightsJudged]) bool { return j.Data.Ordinal() == ordinal })
	if i < 0 {
		return Fact[events.WeightsJudged]{}, false
	}
	return s.judged[i], true
}

// Next is what is to be done. It follows from facts and the clock alone. A person's promotion
// stays: an older judgement leads to nothing.
func (s *State) Next(now time.Time, o Options) Step {
	if len(s.published) == 0 {
		return Step{Kind: Wait, Why: "no version is published"}
	}
	newest := s.published[len(s.published)-1]
	if s.promoted == nil || s.promoted.Data.Version == 0 {
		var seq uint64
		if s.promoted != nil {
			seq = s.promoted.Seq
		}
		// Without it the next version would get all rollouts as soon as it is published.
		return Step{Kind: Promote, Promotion: events.WeightsPromoted{Version: newest},
			ID: fmt.Sprintf("baseline-%d-%d", newest, seq)}
	}
	p := *s.promoted
	if n := len(s.judged); n > 0 && s.judged[n-1].Seq > p.Seq {
		if next, leads := leadsTo(s.judged[n-1], o.Share); leads {
			return Step{Kind: Promote, Promotion: next, ID: "follows-" + s.judged[n-1].Data.Ordinal()}
		}
	}
	if p.Data.Share > 0 {
		return s.ofShare(p)
	}
	return s.due(now, o, p.Data.Version)
}

// leadsTo is what a judgement has as its consequence.
func leadsTo(j Fact[events.WeightsJudged], share float64) (next events.WeightsPromoted, leads bool) {
	switch {
	case j.Data.Verdict == events.JudgedPassed && j.Data.Stage == events.JudgedGate:
		return events.WeightsPromoted{Version: j.Data.Version, Share: share, Before: j.Data.Against, Judgement: j.ID},
			true
	case j.Data.Verdict == events.JudgedPassed:
		return events.WeightsPromoted{Version: j.Data.Version, Before: j.Data.Against, Judgement: j.ID}, true
	case j.Data.Stage == events.JudgedCanary:
		return events.WeightsPromoted{Version: j.Data.Against, RolledBack: j.Data.Version, Judgement: j.ID}, true
	}
	return next, false
}

// ofShare judges a share that followed from a gate, and leaves one that a
// person gave to that person.
func (s *State) ofShare(p Fact[events.WeightsPromoted]) Step {
	step := Step{Kind: Canary, Version: p.Data.Version, Against: p.Data.Before, Given: p}
	ordinal := events.WeightsJudged{Stage: events.JudgedCanary, Version: p.Data.Version,
		Against: p.Data.Before}.Ordinal()
	if _, was := s.Find(ordinal); was || p.Data.Judgement == "" {
		return Step{Kind: Wait, Why: fmt.Sprintf("version %d was given a share by hand: promote it, or roll it back",
			p.Data.Version)}
	}
	return step
}

// due looks for the next version to judge: the newest that was published since the last
// judgement and not taken back.
func (s *State) due(now time.Time, o Options, promoted int64) Step {
	after := max(promoted, s.takenBack)
	var last time.Time
	for _, j := range s.judged {
		if after = max(after, j.Data.Version); j.Data.Stage == events.JudgedGate {
			last = j.Time
		}
	}
	fresh := slices.DeleteFunc(slices.Clone(s.published), func(v int64) bool { return v <= after })
	if len(fresh) == 0 {
		return Step{Kind: Wait, Why: fmt.Sprintf("version %d is promoted, and no newer one is to be judged", promoted)}
	}
	step := Step{Kind: Gate, Version: fresh[len(fresh)-1], Against: promoted}
	switch at := last.Add(o.Every); {
	case o.Every == 0 && o.Versions <= 1, o.Versions > 0 && len(fresh) >= o.Versions:
		return step
	case o.Every > 0 && !now.Before(at):
		return step
	case o.Every > 0:
		return Step{Kind: Wait, Why: fmt.Sprintf("version %d is due %s", step.Version, at.UTC().Format(time.DateTime))}
	}
	return Step{Kind: Wait, Why: fmt.Sprintf("%d of %d versions are published since the last judgement", len(fresh),
		o.Versions)}
}
