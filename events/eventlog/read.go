package eventlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// Last reads the last link of an entity's chain from the stream's leader: a
// replica could be behind.
func (l Reader) Last(ctx context.Context, run, kind, entity string) (events.Event, error) {
	return l.lastOn(ctx, run, events.Chain(run, kind, entity))
}

// LastOfType reads the last event of one type of an entity, also where that has left the run's
// stream. For the entity * it looks at the stream alone.
func (l Reader) LastOfType(ctx context.Context, run string, t events.Type, entity string) (events.Event, error) {
	e, err := l.lastOn(ctx, run, events.Event{Run: run, Type: t, Entity: entity}.Subject())
	if !errors.Is(err, ErrNotFound) || errors.Is(err, errNoRun) || entity == "*" || !leaves(run, t) {
		return e, err
	}
	link, lastErr := l.Last(ctx, run, t.Kind(), entity)
	if lastErr != nil {
		return e, lastErr
	}
	if t != events.RolloutStartedType {
		_, firstErr := l.lastOn(ctx, run, events.Event{Run: run, Type: events.RolloutStartedType,
			Entity: entity}.Subject())
		if !errors.Is(firstErr, ErrNotFound) {
			return e, cmp.Or(firstErr, err) // its whole chain is on the stream
		}
	}
	for link.Type != t {
		if link.Prev == 0 {
			return e, err
		}
		if link, lastErr = l.Event(ctx, run, link.Prev); lastErr != nil {
			return e, lastErr
		}
	}
	return link, nil
}

// leaves reports whether events of a type may leave the stream of a run that goes on.
func leaves(run string, t events.Type) bool {
	return run != events.Catalogue && t.Kind() == events.RolloutStartedType.Kind()
}

// Has reports whether a run's stream has an event whose subject matches a filter.
func (l Reader) Has(ctx context.Context, run, filter string) (bool, error) {
	_, err := l.lastOn(ctx, run, filter)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (l Reader) lastOn(ctx context.Context, run, filter string) (events.Event, error) {
	e, err := l.showing(ctx, run, func() (events.Event, error) {
		return l.leaderGet(ctx, run, map[string]any{"last_by_subj": filter})
	}, func(read, seen uint64) bool { return read < seen })
	if err != nil {
		return e, fmt.Errorf("read last link of %s: %w", filter, err)
	}
	return e, nil
}

// A read is asked again for readPatience while its server is away or changes leaders. A server that
// does not lead leaves a request unanswered, so one request waits for readTimeout only.
const (
	readPatience = 20 * time.Second
	readTimeout  = 2 * time.Second
)

func patient(ctx context.Context, read func() (events.Event, error)) (events.Event, error) {
	began := time.Now()
	for try := 1; ; try++ {
		e, err := read()
		if err == nil || !unknownOutcome(err) || ctx.Err() != nil || time.Since(began) > readPatience {
			return e, err
		}
		if !askAgain.Wait(ctx, try) {
			return e, err
		}
	}
}

// leaderGet asks the stream's leader for a message.
func (l Reader) leaderGet(ctx context.Context, run string, request map[string]any) (events.Event, error) {
	req, err := json.Marshal(request)
	if err != nil {
		return events.Event{}, err
	}
	resp, err := l.get(ctx, run, "$JS.API.STREAM.MSG.GET."+events.RunStream(run), req)
	if err != nil {
		return events.Event{}, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(resp.Data, &answer); err != nil {
		return events.Event{}, err
	}
	switch {
	case answer.Error == nil:
	case answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return events.Event{}, ErrNotFound
	case answer.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return events.Event{}, errNoRun
	default:
		return events.Event{}, answer.Error
	}
	m := answer.Message
	header := nats.Header{}
	if len(m.Header) > 0 { // of a foreign writer
		if header, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return events.Event{}, fmt.Errorf("sequence %d: %w: %w", m.Seq, events.ErrMalformed, err)
		}
	}
	return Decode(ctx, l.store, m.Subject, header, m.Data, m.Seq)
}

// Event reads the event with a sequence of a run, also where that has left the
// run's stream for its archive.
func (l Reader) Event(ctx context.Context, run string, seq uint64) (events.Event, error) {
	key := cacheKey{run, seq}
	if e, ok := l.cache.Get(key); ok {
		return e, nil
	}
	e, err := l.showing(ctx, run, func() (events.Event, error) {
		e, err := l.directGet(ctx, run, seq)
		if errors.Is(err, ErrNotFound) || errors.Is(err, nats.ErrNoResponders) {
			// The replica that answered may be behind, or none answers at the
			// moment: the leader knows.
			e, err = l.leaderGet(ctx, run, map[string]any{"seq": seq})
		}
		if errors.Is(err, ErrNotFound) && !errors.Is(err, errNoRun) && run != events.Catalogue {
			e, err = l.archivedEvent(ctx, run, seq)
		}
		return e, err
	}, func(read, seen uint64) bool { return read == 0 && seq <= seen })
	if err != nil {
		return events.Event{}, fmt.Errorf("read sequence %d of run %s: %w", seq, run, err)
	}
	if len(e.Data) <= cachedBody {
		l.cache.Add(key, e)
	}
	return e, nil
}

// directGet asks any replica for a message.
func (l Reader) directGet(ctx context.Context, run string, seq uint64) (events.Event, error) {
	resp, err := l.get(ctx, run, "$JS.API.DIRECT.GET."+events.RunStream(run), fmt.Appendf(nil, `{"seq":%d}`, seq))
	if err != nil {
		return events.Event{}, err
	}
	switch status := resp.Header.Get("Status"); status {
	case "":
		return Decode(ctx, l.store, resp.Header.Get(jetstream.SubjectHeader), resp.Header, resp.Data, seq)
	case "404":
		return events.Event{}, ErrNotFound
	default:
		return events.Event{}, fmt.Errorf("the server answered %s %s", status, resp.Header.Get("Description"))
	}
}

// History reads an entity's chain from its first link up to the one at
// sequence tail, by walking back.
func (l Reader) History(ctx context.Context, run string, tail uint64) ([]events.Event, error) {
	if tail == 0 {
		return nil, nil
	}
	last, err := l.Event(ctx, run, tail)
	if err != nil {
		return nil, err
	}
	return l.walk(ctx, last, 0)
}

// walk reads the links of a chain that stand behind a sequence, up to the last one.
func (l Reader) walk(ctx context.Context, last events.Event, behind uint64) (links []events.Event, err error) {
	for e := last; e.Seq > behind; {
		if e.Prev >= e.Seq {
			return nil, fmt.Errorf("%s at sequence %d: %w: its chain points forward to %d", e.ID, e.Seq,
				events.ErrMalformed, e.Prev)
		}
		if links = append(links, e); e.Prev <= behind {
			break
		}
		if e, err = l.Event(ctx, last.Run, e.Prev); err != nil {
			return nil, err
		}
	}
	slices.Reverse(links)
	return links, nil
}

// Published reads the last version of a policy that a run, or the catalogue, was told of; found
// is false before the first.
func (l Reader) Published(ctx context.Context, run, policy string) (published events.WeightsPublished,
	found bool, err error) {
	last, err := l.LastOfType(ctx, run, events.WeightsPublishedType, policy)
	if errors.Is(err, ErrNotFound) {
		return published, false, nil
	}
	if err != nil {
		return published, false, err
	}
	published, err = events.Data[events.WeightsPublished](last)
	return published, err == nil, err
}

// MarkVersions marks the versions of a turn as unknown that its policy has not reached: nothing
// can have been sampled with them. The one at dispatch, and those before, it has, and every
// policy begins with version 0.
func (l Reader) MarkVersions(ctx context.Context, policy string, dispatched int64, t *events.TurnSampled) error {
	spans := slices.Clone(t.VersionSpans)
	if spans == nil {
		spans = []events.VersionSpan{{Version: t.PolicyVersion}}
	}
	reached := max(dispatched, 0)
	asked := false
	for i := range spans {
		if spans[i].Version > reached && !asked {
			published, _, err := l.Published(ctx, events.Catalogue, policy)
			if err != nil {
				return err
			}
			reached, asked = max(reached, published.Version), true
		}
		if spans[i].Version > reached {
			spans[i].Version = runfile.UnknownVersion
		}
	}
	t.SetVersions(spans)
	return nil
}

// Config reads the configuration that a run was opened with.
func (l Reader) Config(ctx context.Context, run string) (runfile.RunConfig, error) {
	e, err := l.Event(ctx, run, 1)
	if err != nil {
		return runfile.RunConfig{}, fmt.Errorf("read the opening of run %s: %w", run, err)
	}
	return configOf(run, e)
}

// RecordedConfig is Config also of a run whose stream was deleted. Services do not want it:
// nothing happens in such a run.
func (l Reader) RecordedConfig(ctx context.Context, run string) (runfile.RunConfig, error) {
	if cfg, err := l.Config(ctx, run); !errors.Is(err, ErrNotFound) {
		return cfg, err
	}
	for e, err := range l.All(ctx, run, 1) {
		if err != nil {
			return runfile.RunConfig{}, fmt.Errorf("read the opening of run %s: %w", run, err)
		}
		return configOf(run, e)
	}
	return runfile.RunConfig{}, fmt.Errorf("run %s has no events: %w", run, ErrNotFound)
}

func configOf(run string, e events.Event) (runfile.RunConfig, error) {
	if e.Type != events.RunOpenedType {
		return runfile.RunConfig{}, fmt.Errorf("run %s: %w: its first event is %s", run, events.ErrMalformed, e.Type)
	}
	opened, err := events.Data[events.RunOpened](e)
	return opened.Config, err
}
