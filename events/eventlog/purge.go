package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
)

// PurgeAt is the fill of a run's stream from which on what is archived and over leaves it: half of
// that from which on nothing new begins.
const PurgeAt = topology.FullAt / 2

// PurgeEnded removes the rollouts that have their outcome from a run's stream, as far as they are
// archived: of each chain all links before the outcome, which services may still have to hear of.
// So its last link stays, behind which the server refuses who does not know it. The segments are
// read back first, and compared with the stream. It gives how many rollouts it removed: none from a
// stream that is less full than PurgeAt, or that denies it.
//
// It may be killed at any moment and called again: a chain is purged by one request, and one that
// is purged has no beginning any more.
func (l Archive) PurgeEnded(ctx context.Context, run string) (rollouts int, err error) {
	sealed, err := l.Segments(ctx, run)
	if err != nil {
		return 0, err
	}
	return l.purgeEnded(ctx, run, sealed, l.readBack)
}

// purgeEnded is PurgeEnded behind segments, of which those that are purged must pass a check.
func (l Archive) purgeEnded(ctx context.Context, run string, sealed []events.SegmentSealed,
	check func(context.Context, string, []events.SegmentSealed) error) (rollouts int, err error) {
	info, err := l.anyInfo(ctx, run)
	if err != nil || info.Config.DenyPurge || float64(info.State.Bytes) < PurgeAt*float64(info.Config.MaxBytes) {
		return 0, err
	}
	ended, err := l.ended(ctx, run, through(sealed))
	if err != nil || len(ended) == 0 {
		return 0, err
	}
	first := slices.MinFunc(ended, func(a, b endedChain) int { return int(a.first) - int(b.first) }).first
	if err := check(ctx, run, slices.DeleteFunc(slices.Clone(sealed),
		func(s events.SegmentSealed) bool { return s.Last < first })); err != nil {
		return 0, fmt.Errorf("purge run %s: %w", run, err)
	}
	for _, chain := range ended {
		if err := l.purgeChain(ctx, run, chain); err != nil {
			return rollouts, err
		}
		rollouts++
	}
	return rollouts, l.persistStream(events.RunStream(run))
}

// endedChain is a rollout's chain of which a beginning may leave the stream.
type endedChain struct {
	subject string
	first   uint64 // its first link
	keep    uint64 // its outcome, from which on links stay
}

// ended finds the rollouts whose beginnings are on the stream, and whose outcomes are archived.
func (l Archive) ended(ctx context.Context, run string, through uint64) (ended []endedChain, err error) {
	stream, err := l.js.Stream(ctx, events.RunStream(run))
	if err != nil {
		return nil, fmt.Errorf("look up run %s: %w", run, err)
	}
	started := events.Event{Run: run, Type: events.RolloutStartedType, Entity: "*"}.Subject()
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(started))
	if err != nil {
		return nil, fmt.Errorf("list the rollouts of run %s: %w", run, err)
	}
	for subject := range info.State.Subjects {
		id := strings.Split(subject, ".")[4]
		chain, over, err := l.endedBy(ctx, run, id, through)
		if err != nil {
			return nil, err
		}
		if over {
			ended = append(ended, chain)
		}
	}
	slices.SortFunc(ended, func(a, b endedChain) int { return strings.Compare(a.subject, b.subject) })
	return ended, nil
}

// endedBy reports whether a rollout's outcome is on its chain up to a sequence.
func (l Archive) endedBy(ctx context.Context, run, id string, through uint64) (chain endedChain, over bool, err error) {
	tail, err := l.Last(ctx, run, events.RolloutStartedType.Kind(), id)
	if err != nil {
		return chain, false, err
	}
	outcome, err := l.outcome(ctx, tail)
	if errors.Is(err, ErrNotFound) || err == nil && outcome.Seq > through {
		return chain, false, nil
	}
	if err != nil {
		return chain, false, err
	}
	first, err := l.lastOn(ctx, run, events.Event{Run: run, Type: events.RolloutStartedType, Entity: id}.Subject())
	if errors.Is(err, ErrNotFound) {
		return chain, false, nil // purged by another one just now
	}
	return endedChain{events.Chain(run, events.RolloutStartedType.Kind(), id), first.Seq, outcome.Seq}, err == nil, err
}

// outcome finds a rollout's outcome, which is the last link of its chain but for remarks:
// ErrNotFound where it goes on.
func (l Archive) outcome(ctx context.Context, tail events.Event) (outcome events.Event, err error) {
	switch {
	case tail.Type == events.RolloutScoredType || tail.Type == events.RolloutFailedType:
		return tail, nil
	case !remark(tail.Type):
		return tail, ErrNotFound
	}
	for _, t := range []events.Type{events.RolloutScoredType, events.RolloutFailedType} {
		outcome, err = l.lastOn(ctx, tail.Run, events.Event{Run: tail.Run, Type: t, Entity: tail.Entity}.Subject())
		if err == nil || !errors.Is(err, ErrNotFound) {
			break
		}
	}
	return outcome, err
}

// remark reports whether links of a type may stand behind a rollout's outcome, and say
// nothing of whether it has one.
func remark(t events.Type) bool {
	switch t {
	case events.RolloutInvalidatedType, events.RolloutAnnotatedType, events.RolloutForkedType, events.RolloutHintedType,
		events.TeacherScoredType:
		return true
	}
	return false
}

// purgeTries is how often a purge is sent that gets no answer: what is left is for the caller's
// next time, as other runs wait for theirs.
const purgeTries = 3

// purgeChain removes the links before the one that stays. A purge without an answer is sent again:
// twice, or late, it removes nothing else.
func (l Archive) purgeChain(ctx context.Context, run string, chain endedChain) error {
	for try := 1; ; try++ {
		stream, err := l.js.Stream(ctx, events.RunStream(run))
		if err == nil {
			err = stream.Purge(ctx, jetstream.WithPurgeSubject(chain.subject), jetstream.WithPurgeSequence(chain.keep))
		}
		switch {
		case err == nil:
			return nil
		case !unknownOutcome(err) || try == purgeTries || !askAgain.Wait(ctx, try):
			return fmt.Errorf("purge %s up to %d: %w", chain.subject, chain.keep, err)
		}
	}
}

// readBack reads segments from the store, each once, and compares them with the run's stream.
func (l Archive) readBack(ctx context.Context, run string, sealed []events.SegmentSealed) error {
	in, err := l.Incarnation(ctx, run)
	if err != nil {
		return err
	}
	for _, s := range sealed {
		if l.archives.isRead(s) {
			continue
		}
		if s.Last > in.LastSeq {
			return fmt.Errorf("run %s: %w", run, ErrBehind)
		}
		differs, err := l.verifySegment(ctx, run, s, in, true)
		if err == nil && differs != "" {
			err = fmt.Errorf("%w: %s", ErrBroken, differs)
		}
		if err != nil {
			return err
		}
		l.archives.wasRead(s)
	}
	return nil
}

// PurgedFact makes the event that states how much has left a run's stream, and how much is left,
// behind the last such event; nil where that says it already. A stream that is full although
// nothing could leave it is stated, too. It appends nothing, and brings to the disk what it counts:
// the one who purged may have died before that, or had no answer.
func (l Archive) PurgedFact(ctx context.Context, run string) (*events.Event, error) {
	info, err := l.info(ctx, run)
	if err != nil {
		return nil, err
	}
	var stated events.LogPurged
	fact, err := events.New(run, events.LogPurgedType, run, "", nil)
	if err != nil {
		return nil, err
	}
	fact, last, err := l.BehindLast(ctx, fact)
	if err == nil && last != nil {
		stated, err = events.Data[events.LogPurged](*last)
	}
	purged := events.LogPurged{Events: uint64(info.State.NumDeleted), Bytes: int64(info.State.Bytes)}
	full := int64(float64(topology.FullAt * float64(info.Config.MaxBytes)))
	if err != nil || purged.Events == stated.Events && (purged.Bytes <= full || stated.Bytes > full) {
		return nil, err
	}
	if err := l.persistStream(events.RunStream(run)); err != nil {
		return nil, err
	}
	e, err := events.New(run, events.LogPurgedType, run, fmt.Sprint(fact.Prev), purged)
	e.Source, e.Prev = topology.Archiver, fact.Prev
	return &e, err
}
