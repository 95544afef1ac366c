package intake

import (
	"context"
	"errors"
	"fmt"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runtime"
)

// ordinal identifies the fact: by itself where it can happen only once, else by the sender's id, else by the
// message's place at the door. All three stay the same when the message is delivered again.
func ordinal(m runtime.Message, t events.Type) string {
	if t == events.RunOpenedType || t == events.RunClosedType {
		return "0"
	}
	if id := m.Header[events.HeaderMessageID]; len(id) == 1 && id[0] != "" && len(id[0]) <= 128 {
		return id[0]
	}
	return fmt.Sprintf("door-%d", m.Seq)
}

// source is who the outsider says it is.
func source(m runtime.Message) string {
	if v := m.Header[events.HeaderSource]; len(v) == 1 && v[0] != "" && len(v[0]) <= 128 {
		return "outside/" + v[0]
	}
	return "outside"
}

// admit checks a fact against what it is about, before it is linked.
func (s *Service) admit(ctx context.Context, fact events.Event) error {
	if fact.Type.Kind() == events.WeightsSubmittedType.Kind() {
		if fact.Run != events.Catalogue {
			return refuse("weights belong to the catalogue: publish to %s", events.DoorSubject(events.Catalogue, fact.Type, fact.Entity))
		}
		return nil
	}
	if fact.Run == events.Catalogue {
		return refuse("%s: name a run instead of %q", fact.Type, events.Catalogue)
	}
	if fact.Type == events.RunOpenedType {
		return s.admitRun(ctx, fact)
	}
	cfg, err := s.log.Config(ctx, fact.Run)
	if errors.Is(err, eventlog.ErrNotFound) {
		return refuse("there is no run %q", fact.Run)
	}
	if err != nil {
		return err
	}
	switch fact.Type.Kind() {
	case events.RunClosedType.Kind():
		if fact.Entity != fact.Run {
			return refuse("%s: the entity of a run's facts is the run itself, %q", fact.Type, fact.Run)
		}
	case events.BatchConsumedType.Kind():
		return s.admitBatch(ctx, cfg, fact)
	}
	return nil
}

func (s *Service) admitRun(ctx context.Context, fact events.Event) error {
	if fact.Entity != fact.Run {
		return refuse("%s: the entity of a run's facts is the run itself, %q", fact.Type, fact.Run)
	}
	opened, err := events.Data[events.RunOpened](fact)
	if err != nil {
		return refuse("%v", err)
	}
	if err := opened.Config.Validate(); err != nil {
		return refuse("run %s: %v", fact.Run, err)
	}
	first, err := s.log.Event(ctx, fact.Run, 1)
	if err == nil && string(first.Data) != string(fact.Data) {
		return refuse("there is a run %q already: choose another name", fact.Run)
	}
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return err
	}
	return s.log.EnsureRun(ctx, fact.Run)
}

// progress is what the trainer's facts have in common.
type progress struct {
	Step   int64 `json:"step"`
	ToStep int64 `json:"to_step"`
}

// admitBatch refuses steps that the feed has not reached.
func (s *Service) admitBatch(ctx context.Context, cfg events.RunConfig, fact events.Event) error {
	known := false
	for _, f := range cfg.Feeds {
		known = known || f.Name == fact.Entity
	}
	if !known {
		return refuse("run %s has no feed %q", fact.Run, fact.Entity)
	}
	var ready events.BatchReady
	last, err := s.log.LastOfType(ctx, fact.Run, events.BatchReadyType, fact.Entity)
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
	case err != nil:
		return err
	default:
		if ready, err = events.Data[events.BatchReady](last); err != nil {
			return err
		}
	}
	about, err := events.Data[progress](fact)
	if err != nil {
		return refuse("%v", err)
	}
	if step := max(about.Step, about.ToStep); step > ready.Step {
		return refuse("step %d: feed %s of run %s has only reached step %d", step, fact.Entity, fact.Run, ready.Step)
	}
	return nil
}

// follows says which facts may stand behind a link (nil: begin a chain).
func follows(fact events.Event, last *events.Event) error {
	switch {
	case last == nil && fact.Type.Kind() == events.RolloutStartedType.Kind():
		return refuse("run %s has no rollout %q", fact.Run, fact.Entity)
	case last != nil && last.Type == events.RunClosedType:
		return refuse("run %s is closed", fact.Run)
	}
	return nil
}
