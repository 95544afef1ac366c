package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
)

// Grows waits until a run has some more events than it has now, while processes live. If the run
// does not grow, the error says where it stands.
func Grows(t testing.TB, log *eventlog.Log, run string, more uint64, why string, alive ...*Process) {
	t.Helper()
	began, from := false, uint64(0)
	Eventually(t, func() error {
		if err := Alive(alive...); err != nil {
			t.Fatal(err)
		}
		n, err := length(t.Context(), log, run)
		if err == nil && !began {
			began, from = true, n
		}
		if err == nil && n >= from+more {
			return nil
		}
		return late(func() string {
			text := fmt.Sprintf("run %s has %d events, and should have %d %s", run, n, from+more, why)
			if err != nil {
				text += fmt.Sprintf(": ask for its stream: %v", err)
			}
			return text + "\n" + standing(t.Context(), log, run)
		})
	})
}

// late is an error whose text is made when it is printed: that takes the whole run, and most errors
// of a test that waits are not printed.
type late func() string

func (l late) Error() string { return l() }

// length is the number of events of a run, 0 before it has a stream.
func length(ctx context.Context, log *eventlog.Log, run string) (uint64, error) {
	s, err := log.JetStream().Stream(ctx, events.RunStream(run))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.LastSeq, nil
}

// shownRollouts bounds the text of a failed test.
const shownRollouts = 10

// standing says where a run stands: the last event of its open rollouts, of those first that wait
// longest, and how far its consumers are.
func standing(ctx context.Context, log *eventlog.Log, run string) string {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // a cluster without a leader gives no answer
	defer cancel()
	var lines []string
	consumers, listErr := consumersOf(ctx, log, run) // before a reader has one, too
	open, err := openRollouts(ctx, log, run)
	for i, e := range open {
		if i == shownRollouts {
			lines = append(lines, fmt.Sprintf("%d more rollouts are open", len(open)-i))
			break
		}
		lines = append(lines, fmt.Sprintf("rollout %s is open, its last event is %s at sequence %d", e.Entity, e.Type,
			e.Seq))
	}
	if err != nil {
		lines = append(lines, fmt.Sprintf("read its events: %v", err))
	}
	for _, c := range consumers {
		lines = append(lines,
			fmt.Sprintf("consumer %s: %d pending, %d not acknowledged, delivered up to sequence %d, acknowledged up to %d",
				c.Name, c.NumPending, c.NumAckPending, c.Delivered.Stream, c.AckFloor.Stream))
	}
	if listErr != nil {
		lines = append(lines, fmt.Sprintf("list its consumers: %v", listErr))
	}
	return strings.Join(lines, "\n")
}

// openRollouts are the last events of the rollouts that have no outcome, the oldest first.
func openRollouts(ctx context.Context, log *eventlog.Log, run string) (last []events.Event, err error) {
	open := map[string]events.Event{}
	for e, readErr := range log.All(ctx, run, 1) {
		if err = readErr; err != nil {
			break
		}
		_, known := open[e.Entity]
		switch {
		case e.Type == events.RolloutScoredType || e.Type == events.RolloutFailedType:
			delete(open, e.Entity)
		case e.Type == events.RolloutStartedType, known:
			open[e.Entity] = e
		}
	}
	for _, e := range open {
		last = append(last, e)
	}
	slices.SortFunc(last, func(a, b events.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	return last, err
}

// consumersOf are the consumers of a run's stream, by their names.
func consumersOf(ctx context.Context, log *eventlog.Log, run string) (all []*jetstream.ConsumerInfo, err error) {
	s, err := log.JetStream().Stream(ctx, events.RunStream(run))
	if err != nil {
		return nil, err
	}
	list := s.ListConsumers(ctx)
	for info := range list.Info() {
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b *jetstream.ConsumerInfo) int { return strings.Compare(a.Name, b.Name) })
	return all, list.Err()
}
