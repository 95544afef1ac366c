package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
)

// Last reads the last link of an entity's chain from the stream's leader: a replica could be behind.
func (l *Log) Last(ctx context.Context, run, kind, entity string) (events.Event, error) {
	return l.lastOn(ctx, run, events.Chain(run, kind, entity))
}

// LastOfType reads the last event of one type of an entity.
func (l *Log) LastOfType(ctx context.Context, run string, t events.Type, entity string) (events.Event, error) {
	return l.lastOn(ctx, run, events.Event{Run: run, Type: t, Entity: entity}.Subject())
}

func (l *Log) lastOn(ctx context.Context, run, filter string) (events.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := json.Marshal(map[string]string{"last_by_subj": filter})
	if err != nil {
		return events.Event{}, err
	}
	resp, err := l.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+events.RunStream(run), req)
	if err != nil {
		return events.Event{}, fmt.Errorf("read last link of %s: %w", filter, err)
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
		return events.Event{}, fmt.Errorf("read last link of %s: %w", filter, err)
	}
	if answer.Error != nil {
		if answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound || answer.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound {
			return events.Event{}, fmt.Errorf("%s: %w", filter, ErrNotFound)
		}
		return events.Event{}, fmt.Errorf("read last link of %s: %w", filter, answer.Error)
	}
	m := answer.Message
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return events.Event{}, fmt.Errorf("read last link of %s: %w", filter, err)
	}
	return l.Decode(ctx, m.Subject, header, m.Data, m.Seq)
}

// Event reads the event with a sequence of a run's stream.
func (l *Log) Event(ctx context.Context, run string, seq uint64) (events.Event, error) {
	key := cacheKey{run, seq}
	if e, ok := l.cache.Get(key); ok {
		return e, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := l.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+events.RunStream(run), fmt.Appendf(nil, `{"seq":%d}`, seq))
	if errors.Is(err, nats.ErrNoResponders) {
		// Either there is no such stream, or its server is away for a moment: the stream's information tells.
		if _, infoErr := l.info(ctx, run); infoErr != nil {
			err = infoErr
		}
	}
	if err != nil {
		return events.Event{}, fmt.Errorf("read sequence %d of run %s: %w", seq, run, err)
	}
	if resp.Header.Get("Status") != "" {
		return events.Event{}, fmt.Errorf("sequence %d of run %s: %w: %s", seq, run, ErrNotFound, resp.Header.Get("Description"))
	}
	e, err := l.Decode(ctx, resp.Header.Get(jetstream.SubjectHeader), resp.Header, resp.Data, seq)
	if err == nil && len(e.Data) <= cachedBody {
		l.cache.Add(key, e)
	}
	return e, err
}

// History reads an entity's chain from its first link up to the one at sequence tail, by walking back.
func (l *Log) History(ctx context.Context, run string, tail uint64) ([]events.Event, error) {
	var links []events.Event
	for seq := tail; seq != 0; {
		e, err := l.Event(ctx, run, seq)
		if err != nil {
			return nil, err
		}
		if e.Prev >= seq {
			return nil, fmt.Errorf("%s at sequence %d: %w: its chain points forward to %d", e.ID, seq, events.ErrMalformed, e.Prev)
		}
		links = append(links, e)
		seq = e.Prev
	}
	for i, j := 0, len(links)-1; i < j; i, j = i+1, j-1 {
		links[i], links[j] = links[j], links[i]
	}
	return links, nil
}

// Rollout folds a rollout's chain up to its last link.
func (l *Log) Rollout(ctx context.Context, run, id string) (events.Rollout, error) {
	last, err := l.Last(ctx, run, events.RolloutStartedType.Kind(), id)
	if err != nil {
		return events.Rollout{}, err
	}
	links, err := l.History(ctx, run, last.Seq)
	if err != nil {
		return events.Rollout{}, err
	}
	return events.FoldRollout(links)
}

// Config reads the configuration that a run was opened with.
func (l *Log) Config(ctx context.Context, run string) (events.RunConfig, error) {
	e, err := l.Event(ctx, run, 1)
	if err != nil {
		return events.RunConfig{}, fmt.Errorf("read the opening of run %s: %w", run, err)
	}
	if e.Type != events.RunOpenedType {
		return events.RunConfig{}, fmt.Errorf("run %s: %w: its first event is %s", run, events.ErrMalformed, e.Type)
	}
	opened, err := events.Data[events.RunOpened](e)
	return opened.Config, err
}

// errStop ends a read that has reached its end.
var errStop = errors.New("stop")

// All reads a run's stream from sequence from (at least 1) up to the last event there is when it begins.
func (l *Log) All(ctx context.Context, run string, from uint64) iter.Seq2[events.Event, error] {
	return func(yield func(events.Event, error) bool) {
		in, err := l.Incarnation(ctx, run)
		if err != nil {
			yield(events.Event{}, err)
			return
		}
		if in.LastSeq < max(from, in.FirstSeq, 1) {
			return
		}
		err = l.Follow(ctx, run, from, "", func(e events.Event) error {
			if !yield(e, nil) || e.Seq >= in.LastSeq {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(events.Event{}, err)
		}
	}
}

// Follow hands every event of a run's stream to fn, from sequence from on and as they come, until the context
// ends or fn returns an error, which Follow returns. filter "" is the whole stream. Events come in order and
// without gaps; after a lost connection the read goes on behind the last event.
func (l *Log) Follow(ctx context.Context, run string, from uint64, filter string, fn func(events.Event) error) error {
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(from, 1)}
	if filter != "" {
		cfg.FilterSubjects = []string{filter}
	}
	consumer, err := l.js.OrderedConsumer(ctx, events.RunStream(run), cfg)
	if err != nil {
		return fmt.Errorf("follow run %s: %w", run, err)
	}
	it, err := consumer.Messages(jetstream.PullMaxMessages(500))
	if err != nil {
		return fmt.Errorf("follow run %s: %w", run, err)
	}
	defer it.Stop()
	stop := context.AfterFunc(ctx, it.Stop)
	defer stop()
	for {
		msg, err := it.Next()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("follow run %s: %w", run, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("follow run %s: %w", run, err)
		}
		e, err := l.Decode(ctx, msg.Subject(), msg.Headers(), msg.Data(), meta.Sequence.Stream)
		if err != nil {
			return fmt.Errorf("follow run %s: %w", run, err)
		}
		if err := fn(e); err != nil {
			return err
		}
	}
}
