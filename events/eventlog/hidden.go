package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage"
)

// A run's stream is hidden while it is restored. It has its name and its events, and takes none of
// the run's subjects, so that an append finds no stream. Only the restoration may publish on the
// subjects that it takes instead. One update of the stream's settings shows it.

// hiddenPrefix begins the subjects of hidden streams; the run and the rest of
// an event's subject follow.
const hiddenPrefix = "rondo.restore."

// ErrRestoring is the ErrNotFound of a run whose stream is hidden.
var ErrRestoring = fmt.Errorf("%w: it is hidden while the run is restored, and `rondo run recover` goes on where that was interrupted", errNoRun)

// ErrBehind means that a run's stream ends before its archive: the log was rolled back. An append
// would take a sequence that the archive has.
var ErrBehind = errors.New("the stream ends before its archive, so the log was rolled back")

func hide(cfg *jetstream.StreamConfig, run string) {
	cfg.Subjects = []string{hiddenPrefix + run + ".>"}
	cfg.SubjectTransform = &jetstream.SubjectTransformConfig{Source: cfg.Subjects[0], Destination: everythingOn(run)}
}

func hidden(cfg jetstream.StreamConfig) bool { return cfg.SubjectTransform != nil }

// Look reads the identity and the bounds of a run's stream, also of a hidden one.
func (l Reader) Look(ctx context.Context, run string) (in Incarnation, isHidden bool, err error) {
	info, err := l.anyInfo(ctx, run)
	if err != nil {
		return in, false, err
	}
	return Incarnation{Created: info.Created, FirstSeq: info.State.FirstSeq, LastSeq: info.State.LastSeq},
		hidden(info.Config), nil
}

// MakeHidden makes the stream of a run where it is missing, and hides it.
func (l Restorer) MakeHidden(ctx context.Context, run string, settings runfile.Log) error {
	return Streams{l.Reader}.makeRun(ctx, run, settings, func(cfg *jetstream.StreamConfig) { hide(cfg, run) })
}

// Hide hides a run's stream in one step: what is appended before it is on the stream, and
// nothing is appended behind it.
func (l Restorer) Hide(ctx context.Context, run string) error {
	return l.changeStream(ctx, run, "hide", func(cfg *jetstream.StreamConfig) { hide(cfg, run) })
}

// Show gives a hidden stream its run's subjects back, in one step.
func (l Restorer) Show(ctx context.Context, run string) error {
	return l.changeStream(ctx, run, "show", func(cfg *jetstream.StreamConfig) {
		cfg.Subjects, cfg.SubjectTransform = topology.Stream(events.RunStream(run)).Subjects, nil
	})
}

func (l *core) changeStream(ctx context.Context, run, what string, change func(*jetstream.StreamConfig)) error {
	info, err := l.anyInfo(ctx, run)
	if err != nil {
		return err
	}
	change(&info.Config)
	if _, err := l.js.UpdateStream(ctx, info.Config); err != nil {
		return fmt.Errorf("%s the stream of run %s: %w", what, run, err)
	}
	return l.persistStream(events.RunStream(run))
}

// Records reads what a run's stream, which may be hidden, holds from a sequence on, as the archive
// keeps it, up to the last one there is when it begins.
func (l Archive) Records(ctx context.Context, run string, from uint64, fn func(storage.Record) error) error {
	in, _, err := l.Look(ctx, run)
	if err != nil || in.LastSeq < from {
		return err
	}
	r := &cursor{log: l.Reader, run: run, created: in.Created, next: from, until: in.LastSeq,
		restores: true, patience: endPatience}
	r.raw = func(m jetstream.Msg, meta *jetstream.MsgMetadata) error { return fn(record(m, meta)) }
	return r.read(ctx)
}

// Put writes a record to a hidden stream where it was: behind the one before it, and nowhere else.
func (l Restorer) Put(ctx context.Context, run string, r storage.Record) error {
	msg := nats.NewMsg(hiddenPrefix + strings.TrimPrefix(r.Subject, events.SubjectPrefix))
	msg.Data = r.Data
	for name, values := range r.Header {
		msg.Header[name] = slices.Clone(values)
	}
	ack, err := l.js.PublishMsg(ctx, msg, jetstream.WithExpectStream(events.RunStream(run)),
		jetstream.WithExpectLastSequence(uint64(r.Sequence)-1))
	if err == nil && ack.Sequence != uint64(r.Sequence) {
		err = fmt.Errorf("%w: it was appended at sequence %d", ErrBroken, ack.Sequence)
	}
	return err
}

// PurgeRestored is PurgeEnded of a hidden stream behind segments from which it was written, or
// with which it was compared.
func (l Restorer) PurgeRestored(ctx context.Context, run string, sealed []events.SegmentSealed) error {
	_, err := l.purgeEnded(ctx, run, sealed, func(context.Context, string, []events.SegmentSealed) error { return nil })
	return err
}

// reached is a stream that was found to reach as far as its archive. A server that came
// back may have an older one.
type reached struct {
	created    any
	connection uint64
}

// checkEnd refuses appends to a stream that ends before its archive. It asks once for each stream
// and connection, and waits for a server that is away.
func (l Appender) checkEnd(ctx context.Context, run string) error {
	at := func(connection uint64) reached {
		created, _ := l.created.Load(run)
		return reached{created, connection}
	}
	for try := 1; ; try++ {
		connection := l.nc.Stats().Reconnects
		if known, ok := l.reached.Load(run); ok && known == at(connection) || run == events.Catalogue {
			return nil
		}
		archived, err := l.Archived(ctx, run)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil // the append finds no stream, either
		case err == nil && archived.Last < archived.Through:
			return fmt.Errorf("run %s: %w: it ends at %d, and the archive at %d (rondo run recover %s)", run, ErrBehind,
				archived.Last, archived.Through, run)
		case err == nil:
			l.reached.Store(run, at(connection))
			return nil
		case ctx.Err() == nil && !unknownOutcome(err):
			return err
		}
		if !appendAgain.Wait(ctx, try) {
			return fmt.Errorf("look how far run %s is archived: %w", run, ctx.Err())
		}
	}
}
