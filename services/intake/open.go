package intake

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"time"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
)

// open makes a run's stream and states the opening as its first event; when that is there, it lists
// the run in the catalogue. at is when the message came.
func (s *Service) open(ctx context.Context, fact events.Event, opened *events.RunOpened,
	at time.Time) (facts []events.Event, stored events.Event, err error) {
	if err := admitRun(fact); err != nil {
		return nil, stored, err
	}
	stored, err = s.log.Event(ctx, fact.Run, 1)
	if errors.Is(err, eventlog.ErrNotFound) {
		if err := s.admitOpening(ctx, fact, opened); err != nil {
			return nil, stored, err
		}
		if fact, err = s.beginning(ctx, fact, *opened); err != nil {
			return nil, stored, err
		}
		// A stream is no event, and the opening needs it.
		err := s.streams.EnsureRunFor(ctx, fact.Run, opened.Config.Log)
		if errors.Is(err, eventlog.ErrNoRoom) {
			return nil, stored,
				refuse("run %s: its log reserves %s (log.max_bytes), and %v: set a smaller log.max_bytes, delete the streams of archived runs "+
					"(rondo gc --runs-older-than), or raise the server's limit (max_file_store)", fact.Run,
					runfile.Size(opened.Config.Log.Bytes()), eventlog.ErrNoRoom)
		}
		if errors.Is(err, eventlog.ErrReplicas) {
			return nil, stored, refuse("run %s: log.replicas %d: %v", fact.Run, opened.Config.Log.Replicas, err)
		}
		if err != nil {
			return nil, stored, err
		}
		if err := s.ensureWorkers(ctx, fact.Run, opened.Config); err != nil {
			return nil, stored, err
		}
		return []events.Event{fact}, stored, pipeline.ErrCallAgain
	}
	switch {
	case err != nil:
		return nil, stored, err
	case !sameOpening(*opened, stored):
		return nil, stored, refuse("there is a run %q already, with another configuration: choose another name",
			fact.Run)
	}
	if err := s.openAt(ctx, fact.Run, at); err != nil {
		return nil, stored, err
	}
	// Who is told that a run is open finds it after a power cut, at every durability. The catalogue
	// comes second: what it lists is there.
	if err := s.streams.Persist(fact.Run); err != nil {
		return nil, stored, err
	}
	listed, err := s.catalogue(ctx, stored)
	if err != nil {
		return nil, stored, err
	}
	if listed == nil {
		return nil, stored, s.streams.Persist(events.Catalogue)
	}
	return []events.Event{*listed}, stored, nil
}

// beginning is an opening with the version that the run's policy has now.
func (s *Service) beginning(ctx context.Context, fact events.Event, opened events.RunOpened) (events.Event, error) {
	published, found, err := s.log.Published(ctx, events.Catalogue, opened.Config.Policy)
	if err != nil || !found {
		return fact, err
	}
	opened.PolicyVersion = published.Version
	fact.Data, err = events.Encode(opened)
	return fact, err
}

// sameOpening reports whether an opening says what a recorded one does, but for the version that
// the intake has looked up.
func sameOpening(opened events.RunOpened, stored events.Event) bool {
	payload, err := decode(stored.Type, stored.Data)
	recorded, ok := payload.(*events.RunOpened)
	if err != nil || !ok {
		return false
	}
	recorded.PolicyVersion = 0
	return reflect.DeepEqual(opened, *recorded)
}

// opened answers when a run is listed.
func (s *Service) opened(m pipeline.Message, fact events.Event) error {
	if fact.Run != events.Catalogue {
		return nil // it is not listed yet
	}
	if err := s.streams.Persist(events.Catalogue); err != nil {
		return err
	}
	s.answer(m, events.IntakeAnswer{ID: fact.ID, Sequence: 1}) // of the run's own stream
	return nil
}

// admitOpening checks the configuration of a run that is to be opened, and its name.
func (s *Service) admitOpening(ctx context.Context, fact events.Event, opened *events.RunOpened) error {
	if err := admitReferences(fact, opened); err != nil {
		return err
	}
	if opened.PolicyVersion != 0 {
		return refuse("run %s: leave policy_version out of its opening: the intake looks it up; policy_version in the configuration pins one", fact.Run)
	}
	var written struct {
		Config any `json:"config"`
	}
	if err := json.Unmarshal(fact.Data, &written); err != nil {
		return refuse("run %s: %v", fact.Run, err)
	}
	if err := errors.Join(runfile.CheckWritten(written.Config, &runfile.RunConfig{}),
		opened.Config.Validate()); err != nil {
		return refuse("run %s: %v", fact.Run, err)
	}
	if err := advantage.Check(opened.Config); err != nil {
		return refuse("run %s: %v", fact.Run, err)
	}
	if opened.Continues != nil {
		if err := s.admitContinued(ctx, fact.Run, opened); err != nil {
			return err
		}
	}
	return s.admitName(ctx, fact.Run)
}

// admitContinued checks what a run says that it takes along, and that the plane knows the run and
// the weights that it names.
func (s *Service) admitContinued(ctx context.Context, run string, opened *events.RunOpened) error {
	before, policy := opened.Continues, opened.Config.Policy
	if err := before.Validate(run, opened.Config); err != nil {
		return refuse("run %s %v", run, err)
	}
	if _, err := s.log.Last(ctx, events.Catalogue, events.RunOpenedType.Kind(),
		before.Run); errors.Is(err, eventlog.ErrNotFound) {
		return refuse("run %s continues %s: there is no such run", run, before.Run)
	} else if err != nil {
		return err
	}
	published, _, err := s.log.Published(ctx, events.Catalogue, policy)
	if err == nil && before.PolicyVersion > published.Version {
		return refuse("run %s continues %s at version %d of policy %s, which was never published", run, before.Run,
			before.PolicyVersion, policy)
	}
	return err
}

// admitName refuses the name of a run whose stream was deleted: the catalogue, and
// what was trained, know it.
func (s *Service) admitName(ctx context.Context, run string) error {
	_, err := s.log.Last(ctx, events.Catalogue, events.RunOpenedType.Kind(), run)
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := s.log.Event(ctx, run, 1); !errors.Is(err, eventlog.ErrNotFound) {
		return err // another intake has opened the run since this one looked
	}
	return refuse("there was a run %q, whose log is deleted: choose another name", run)
}

// openAt refuses to open a run again that was closed before the message came.
func (s *Service) openAt(ctx context.Context, run string, at time.Time) error {
	last, err := s.log.Last(ctx, run, events.RunOpenedType.Kind(), run)
	if err == nil && last.Type == events.RunClosedType && last.Time.Before(at) {
		return refuse("run %s is closed: choose another name", run)
	}
	return err
}

// catalogue is the copy of a run's opening or closing for where all services look for runs; nil
// when it was copied long ago.
func (s *Service) catalogue(ctx context.Context, e events.Event) (*events.Event, error) {
	c := events.Event{ID: e.ID, Run: events.Catalogue, Type: e.Type, Entity: e.Run, Data: e.Data}
	c, last, err := s.log.BehindLast(ctx, c)
	if err != nil || last != nil && (last.ID == c.ID || last.Type == events.RunClosedType) {
		return nil, err
	}
	return &c, nil
}
