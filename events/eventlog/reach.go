package eventlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/parts"
)

// ErrGap means that a history is not whole, so nobody can say what it refers to.
var ErrGap = errors.New("the history has a gap")

// Lost reports whether an error of Reach says that the history itself is damaged or gone, as
// opposed to a server or a store that fails.
func Lost(err error) bool {
	return errors.Is(err, ErrGap) || errors.Is(err, errNoRun) || errors.Is(err, events.ErrMalformed) || wrong(err)
}

// Reach tells key of every object that a run's history refers to from a sequence on (at least 1),
// perhaps more than once: bodies that are too large for the log, what payloads name, and the
// workspaces within trajectories of outsiders. It reads the run's stream and, where that has a gap
// or is gone, its archive, and gives the last sequence that there was. A history that cannot be
// read whole is an error, ErrGap where events are missing. In the catalogue, where dead letters
// expire, an event is missing when one that is there follows it.
func (l Archive) Reach(ctx context.Context, run string, from uint64,
	key func(key string) error) (last uint64, err error) {
	from = max(from, 1)
	in, err := l.Incarnation(ctx, run)
	if errors.Is(err, ErrNotFound) {
		sealed, err := l.Segments(ctx, run)
		if err == nil && len(sealed) == 0 {
			err = fmt.Errorf("run %s: %w, and nothing of it is archived", run, errNoRun)
		}
		if err != nil {
			return 0, err
		}
		return l.ReachSegments(ctx, run, sealed, from, key)
	}
	if err != nil {
		return 0, err
	}
	for next := from; next <= in.LastSeq; {
		if next, err = l.reachStream(ctx, run, in, next, key); err == nil {
			continue
		}
		if !errors.Is(err, ErrGap) || run == events.Catalogue {
			return 0, err
		}
		sealed, archiveErr := l.segmentsTo(ctx, run, next)
		if archiveErr != nil {
			return 0, archiveErr
		}
		if through(sealed) < next {
			return 0, err
		}
		if next, err = l.ReachSegments(ctx, run, sealed, next, key); err != nil {
			return 0, err
		}
		next++
	}
	return in.LastSeq, nil
}

// reachStream is Reach over a stream, and gives the sequence that it comes to: behind the last
// event, or at a gap, an ErrGap.
func (l Archive) reachStream(ctx context.Context, run string, in Incarnation, from uint64,
	key func(key string) error) (next uint64, err error) {
	next = from
	var gaps []gap
	r := &cursor{log: l.Reader, run: run, created: in.Created, next: from, until: in.LastSeq,
		raw: func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
			if meta.Sequence.Stream != next {
				if run != events.Catalogue {
					return fmt.Errorf("run %s: %w: sequence %d comes where %d should", run, ErrGap,
						meta.Sequence.Stream, next)
				}
				gaps = append(gaps, gap{next, meta.Sequence.Stream})
			}
			next = meta.Sequence.Stream + 1
			if e, err := events.Parse(m.Subject(), m.Headers(), m.Data()); err == nil && inGap(gaps, e.Prev) {
				return fmt.Errorf("run %s: %w: sequence %d follows %d, which is missing", run, ErrGap,
					meta.Sequence.Stream, e.Prev)
			}
			return l.reachMessage(ctx, m.Subject(), m.Headers(), m.Data(), meta.Sequence.Stream, key)
		}}
	if err := r.read(ctx); err != nil {
		return next, err
	}
	if next <= in.LastSeq && run != events.Catalogue {
		return next, fmt.Errorf("run %s: %w: it ends at %d instead of %d", run, ErrGap, next-1, in.LastSeq)
	}
	return in.LastSeq + 1, nil
}

// gap are sequences of the catalogue that are not there any more, from the first one up to the one
// before end. Dead letters expire, each on a chain of its own; anything else that is missing has a
// link behind it, or was its chain's last.
type gap struct{ first, end uint64 }

func inGap(gaps []gap, seq uint64) bool {
	i, _ := slices.BinarySearchFunc(gaps, seq, func(g gap, seq uint64) int { return cmp.Compare(g.end, seq+1) })
	return seq > 0 && i < len(gaps) && gaps[i].first <= seq
}

// ReachSegments is Reach over segments, and names the segments, too.
func (l Archive) ReachSegments(ctx context.Context, run string, sealed []events.SegmentSealed, from uint64,
	key func(key string) error) (last uint64, err error) {
	if err := CheckSegments(run, sealed); err != nil {
		return 0, err
	}
	for _, s := range sealed {
		if err := key(s.Segment.Key); err != nil {
			return 0, err
		}
		if last = s.Last; s.Last < from {
			continue
		}
		segment, err := ReadSegment(ctx, l.store, run, s)
		if err != nil {
			return 0, err
		}
		for r, err := range segment.Records() {
			if err != nil {
				return 0, err
			}
			if err := l.reachMessage(ctx, r.Subject, r.Header, r.Data, uint64(r.Sequence), key); err != nil {
				return 0, err
			}
		}
	}
	return last, nil
}

// ReachSubmissions tells key of the references in the submissions that wait for the intake.
func (l Archive) ReachSubmissions(ctx context.Context, key func(key string) error) error {
	submissions, err := l.js.Stream(ctx, events.IntakeStream)
	if err != nil {
		return fmt.Errorf("look up the intake's stream: %w", err)
	}
	for seq := uint64(1); ; seq++ {
		m, err := submissions.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(events.IntakePrefix+">"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read submission %d of the intake's stream: %w", seq, err)
		}
		seq = m.Sequence
		_, err = l.reachBody(ctx, m.Header, m.Data, key)
		// the intake will refuse what is wrong with it
		if err != nil && !wrong(err) && !errors.Is(err, events.ErrMalformed) {
			return fmt.Errorf("submission %d of the intake's stream: %w", seq, err)
		}
	}
}

// reachMessage tells of the objects that one message of a stream refers to.
func (l Archive) reachMessage(ctx context.Context, subject string, h nats.Header, body []byte, seq uint64,
	key func(string) error) error {
	e, err := events.Parse(subject, h, body)
	isEvent := err == nil
	e.Data, err = l.reachBody(ctx, h, body, key)
	if errors.Is(err, events.ErrMalformed) && !isEvent {
		return nil // a foreign message refers to nothing that anybody could read
	}
	if err == nil && e.Type == events.RolloutFinishedType && events.External(e.Entity) {
		err = l.reachTrajectory(ctx, e, key)
	}
	if err != nil {
		return fmt.Errorf("sequence %d (%s): %w", seq, subject, err)
	}
	return nil
}

// reachBody gives the body itself where the message only refers to it.
func (l Archive) reachBody(ctx context.Context, h nats.Header, body []byte, key func(string) error) ([]byte, error) {
	if len(h[events.HeaderDataRef]) > 0 {
		var ref storage.Ref
		if err := json.Unmarshal(body, &ref); err != nil {
			return nil, fmt.Errorf("body reference: %w: %w", events.ErrMalformed, err)
		}
		if err := key(ref.Key); err != nil {
			return nil, err
		}
		var err error
		if body, err = storage.GetBlob(ctx, l.store, ref); err != nil {
			return nil, err
		}
	}
	document, err := events.Document(body)
	if err != nil {
		return nil, err
	}
	refs, err := storage.References(document)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", events.ErrMalformed, err)
	}
	for _, ref := range refs {
		if err := key(ref.Key); err != nil {
			return nil, err
		}
		if err := l.reachParts(ctx, ref, key); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// reachParts tells of the parts of what a reference names. An index that is missing or damaged, as
// an outsider may name one, names none.
func (l Archive) reachParts(ctx context.Context, ref storage.Ref, key func(string) error) error {
	refs, err := parts.References(ctx, l.store, ref)
	if err != nil && !storage.IsUnusable(err) {
		return err
	}
	for _, part := range refs {
		if err := key(part.Key); err != nil {
			return err
		}
	}
	return nil
}

// reachTrajectory tells of the workspaces that an outsider's trajectory file names: no fact does.
func (l Archive) reachTrajectory(ctx context.Context, e events.Event, key func(string) error) error {
	if err := checkVersion(e); err != nil {
		return err
	}
	f, err := events.Data[events.RolloutFinished](e)
	if err != nil {
		return err
	}
	data, err := storage.GetBlob(ctx, l.store, f.Trajectory)
	if err != nil {
		return err
	}
	t, err := storage.DecodeTrajectory(data)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Trajectory.Key, err)
	}
	for _, m := range t.Messages {
		if m.Workspace == "" {
			continue
		}
		if err := key(m.Workspace); err != nil {
			return err
		}
	}
	return nil
}
