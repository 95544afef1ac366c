package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
)

// ErrClosed means that the catalogue has a run's closing, behind which no service
// takes work from the run.
var ErrClosed = errors.New("the run is closed")

// mustServe is ErrClosed of a run that no service takes work from.
func (l Streams) mustServe(ctx context.Context, run string) error {
	last, err := l.Last(ctx, events.Catalogue, events.RunClosedType.Kind(), run)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil // it is being opened
	case err == nil && last.Type == events.RunClosedType:
		return fmt.Errorf("run %s: %w", run, ErrClosed)
	}
	return err
}

// RemoveConsumers removes the durable consumers of a closed run's stream. Those stay from which
// somebody pulls, or of which a delivery is not acknowledged: a service may be late to hear of the
// closing. It gives how many they are.
func (l Streams) RemoveConsumers(ctx context.Context, run string) (stay int, err error) {
	stream, err := l.js.Stream(ctx, events.RunStream(run))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look up run %s: %w", run, silent(ctx, err))
	}
	var idle []string
	list := stream.ListConsumers(ctx)
	for c := range list.Info() {
		switch {
		case c.Config.Durable == "": // a reader's, which ends with it
		case c.NumWaiting > 0 || c.NumAckPending > 0:
			stay++
		default:
			idle = append(idle, c.Name)
		}
	}
	if err := list.Err(); err != nil {
		return stay, fmt.Errorf("list the consumers of run %s: %w", run, silent(ctx, err))
	}
	for _, name := range idle {
		err := stream.DeleteConsumer(ctx, name)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) &&
			!errors.Is(err, jetstream.ErrStreamNotFound) {
			return stay, fmt.Errorf("remove consumer %s of run %s: %w", name, run, silent(ctx, err))
		}
	}
	return stay, nil
}

// Release drops what is remembered of a run. Who reads it later reads it anew.
func (l Streams) Release(run string) {
	for _, key := range l.cache.Keys() {
		if key.run == run {
			l.cache.Remove(key)
		}
	}
	l.folds.release(run)
	l.archives.release(run)
	l.created.Delete(run)
	l.single.Delete(run)
	l.reached.Delete(run)
}

func (f *folds) release(run string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range f.kept.Keys() {
		if strings.HasPrefix(key, run+"/") {
			f.kept.Remove(key)
		}
	}
}

func (a *archives) release(run string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.known[run].sealed {
		delete(a.read, s.Segment.SHA256)
	}
	delete(a.known, run)
	delete(a.ends, run)
}
