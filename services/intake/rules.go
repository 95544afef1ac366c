package intake

import (
	"context"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
)

// rule is what the intake holds the facts of one type to. Who may state a type, and where its facts
// stand, is in events.Definitions; what they may say at all is in their schema.
type rule struct {
	// once: an entity has at most one such fact.
	once bool
	// ordinal tells the facts of an entity apart by what they say; nil: the sender's id does.
	ordinal func(payload any) string
	// admit checks a fact against what it is about, before it is linked; nil for no more checks.
	admit func(*Service, context.Context, submitted) error
	// next checks a fact of an outsider's rollout against the rollout as it stands.
	next func(s *Service, ctx context.Context, run runfile.RunConfig, r *events.Rollout, payload any) error
	// follows checks what a fact is linked behind; nil begins a chain.
	follows func(s *Service, ctx context.Context, fact events.Event, last *events.Event) error
}

// submitted is a fact that somebody states, with what it is judged by.
type submitted struct {
	message pipeline.Message
	run     runfile.RunConfig // empty for facts of the catalogue
	fact    events.Event
	payload any
}

// rules has a row for each type that outsiders may state.
var rules = map[events.Type]rule{
	events.RunOpenedType:  {once: true}, // see open
	events.RunPausedType:  {},
	events.RunResumedType: {},
	events.RunClosedType:  {once: true},

	events.GroupOpenedType: {once: true, admit: check((*Service).admitGroup), follows: whileOpen},

	events.RolloutStartedType: {once: true, follows: whileOpen,
		admit: func(s *Service, ctx context.Context, a submitted) error {
			return s.admitStarted(ctx, a.run, a.fact, a.payload.(*events.RolloutStarted), a.message.Time)
		}},
	events.TurnSampledType: {next: next((*Service).admitSampled),
		ordinal: ordinalBy(func(p *events.TurnSampled) string { return events.Ordinal(p.Turn) })},
	events.WorkspaceCalledType: {
		next: func(s *Service, ctx context.Context, _ runfile.RunConfig, r *events.Rollout, payload any) error {
			return s.admitCalled(ctx, r, payload.(*events.WorkspaceCalled))
		}},
	events.RolloutFinishedType: {once: true, next: next((*Service).admitFinished)},
	events.RolloutScoredType: {once: true,
		next: func(s *Service, ctx context.Context, _ runfile.RunConfig, r *events.Rollout, payload any) error {
			return s.admitScored(ctx, r, payload.(*events.RolloutScored))
		}},
	events.RolloutFailedType: {once: true,
		next: func(_ *Service, _ context.Context, _ runfile.RunConfig, _ *events.Rollout, payload any) error {
			return admitFailed(payload.(*events.RolloutFailed))
		}},

	events.RolloutObservedType: {admit: check((*Service).admitObserved), follows: (*Service).stillAwaited,
		ordinal: ordinalBy(func(p *events.RolloutObserved) string {
			if p.Held {
				return events.Ordinal(p.Turn+1) + "-held"
			}
			return events.Ordinal(p.Turn + 1)
		})},
	events.RolloutRatedType:       {once: true, admit: check((*Service).admitRated), follows: (*Service).stillAwaited},
	events.RolloutInvalidatedType: {},
	events.RolloutAnnotatedType: {admit: func(s *Service, ctx context.Context, a submitted) error {
		return s.admitTurn(ctx, a.fact, a.payload.(*events.RolloutAnnotated).Turn)
	}},
	events.RolloutForkedType: {admit: check((*Service).admitFork)},
	events.RolloutHintedType: {admit: check((*Service).admitHinted),
		ordinal: ordinalBy(func(p *events.RolloutHinted) string { return p.By })},
	events.TeacherScoredType: {
		ordinal: ordinalBy(func(p *events.TeacherScored) string { return p.Teacher }),
		admit: func(s *Service, ctx context.Context, a submitted) error {
			return s.admitTeacher(ctx, a.message, a.run, a.fact, a.payload.(*events.TeacherScored))
		}},

	events.CaptureBegunType: {admit: admitCapture, follows: (*Service).followsCapture,
		ordinal: ordinalBy(func(p *events.CaptureBegun) string { return p.Call })},
	events.CaptureRecordedType: {admit: admitCapture, follows: (*Service).followsCapture,
		ordinal: ordinalBy(func(p *events.CaptureRecorded) string { return p.Call })},
	events.CaptureIncompleteType: {admit: admitCapture, follows: (*Service).followsCapture},
	events.CaptureRetiredType:    {once: true, admit: admitCapture, follows: (*Service).followsCapture},

	events.QuerySubmittedType:   {once: true, admit: check((*Service).admitQuery)},
	events.FeedbackRecordedType: {admit: check((*Service).admitFeedback)},
	events.MarkRecordedType:     {admit: check((*Service).admitMark)},

	events.BatchConsumedType: {admit: check((*Service).admitConsumed)},
	events.BatchCheckpointedType: {admit: func(s *Service, ctx context.Context, a submitted) error {
		return s.admitStep(ctx, a.run, a.fact, "step", a.payload.(*events.BatchCheckpointed).Step)
	}},
	events.BatchRewoundType: {admit: func(s *Service, ctx context.Context, a submitted) error {
		return s.admitStep(ctx, a.run, a.fact, "to_step", a.payload.(*events.BatchRewound).ToStep)
	}},

	events.WeightsSubmittedType: {admit: func(s *Service, ctx context.Context, a submitted) error {
		return s.admitSubmitted(ctx, a.payload.(*events.WeightsSubmitted))
	}},
	events.WeightsActivatedType: {admit: func(s *Service, ctx context.Context, a submitted) error {
		return s.admitPublished(ctx, a.fact, a.payload.(*events.WeightsActivated).Version)
	}},
	events.WeightsPromotedType: {follows: (*Service).followsJudgement,
		admit: func(s *Service, ctx context.Context, a submitted) error {
			return s.admitPromoted(ctx, a.fact, a.payload.(*events.WeightsPromoted))
		}},
	events.WeightsJudgedType: {
		ordinal: ordinalBy(func(p *events.WeightsJudged) string { return p.Ordinal() }),
		admit: func(s *Service, ctx context.Context, a submitted) error {
			return s.admitJudged(ctx, a.fact, a.payload.(*events.WeightsJudged))
		}},

	events.RepoChangedType: {},
}

// check makes an admission of one that takes the run, the fact and its payload.
func check[P any](admit func(*Service, context.Context, runfile.RunConfig, events.Event, *P) error) func(*Service,
	context.Context, submitted) error {
	return func(s *Service, ctx context.Context, a submitted) error {
		return admit(s, ctx, a.run, a.fact, a.payload.(*P))
	}
}

// next makes a check against a rollout of one that takes its payload.
func next[P any](admit func(*Service, context.Context, runfile.RunConfig, *events.Rollout, *P) error) func(*Service,
	context.Context, runfile.RunConfig, *events.Rollout, any) error {
	return func(s *Service, ctx context.Context, run runfile.RunConfig, r *events.Rollout, payload any) error {
		return admit(s, ctx, run, r, payload.(*P))
	}
}

// ordinalBy makes an ordinal of one that takes a payload.
func ordinalBy[P any](ordinal func(*P) string) func(any) string {
	return func(payload any) string { return ordinal(payload.(*P)) }
}

// whileOpen lets facts begin a chain as long as the run is open.
func whileOpen(s *Service, ctx context.Context, fact events.Event, _ *events.Event) error {
	return s.admitClosed(ctx, fact)
}
