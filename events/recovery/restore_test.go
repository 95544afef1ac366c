package recovery_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/recovery"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// lostRun is a plane with an archived run, of which tests lose parts.
type lostRun struct {
	*testing.T
	server  *embedded.Server
	log     *eventlog.Log
	sealed  []events.SegmentSealed
	records []storage.Record // the archive's
}

// newLostRun makes an open run of an opening and n remarks, archived in two segments.
func newLostRun(t *testing.T, n int) *lostRun {
	t.Helper()
	r := &lostRun{T: t, server: natstest.Server(t)}
	store := natstest.Store(t)
	var err error
	if r.log, err = eventlog.New(natstest.Connect(t, r.server), store); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.log.Streams.Ensure(t.Context()), r.log.Streams.EnsureRun(t.Context(), "r")); err != nil {
		t.Fatal(err)
	}
	opening := r.event(events.RunOpenedType, "r", events.RunOpened{Config: runfile.DefaultRunConfig()})
	opening = r.append(opening)
	if err := r.log.Appender.ListRun(t.Context(), opening); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		r.append(r.remark(i))
		if i == n/2 {
			r.seal()
		}
	}
	r.seal()
	r.records = r.stream()
	return r
}

func (r *lostRun) event(typ events.Type, entity string, data any) events.Event {
	r.Helper()
	e, err := events.New("r", typ, entity, "0", data)
	if err != nil {
		r.Fatal(err)
	}
	return e
}

// remark is an event of a chain of its own.
func (r *lostRun) remark(n int) events.Event {
	return r.event(events.RolloutAnnotatedType, events.RolloutID(events.GroupID(int64(n+1)), 0),
		events.RolloutAnnotated{Text: fmt.Sprint("remark ", n)})
}

func (r *lostRun) append(e events.Event) events.Event {
	r.Helper()
	stored, _, err := r.log.Appender.Append(r.Context(), e)
	if err != nil {
		r.Fatal(err)
	}
	return stored
}

func (r *lostRun) seal() {
	r.Helper()
	if _, err := r.log.Appender.Seal(r.Context(), "r", true); err != nil {
		r.Fatal(err)
	}
	var err error
	if r.sealed, err = r.log.Segments(r.Context(), "r"); err != nil {
		r.Fatal(err)
	}
}

func (r *lostRun) stream() (records []storage.Record) {
	r.Helper()
	err := r.log.Archive.Records(r.Context(), "r", 1, func(one storage.Record) error {
		records = append(records,
			one)
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	return records
}

// lose deletes the stream, as no service does.
func (r *lostRun) lose() {
	r.Helper()
	if err := r.log.Streams.DeleteRun(r.Context(), "r"); err != nil {
		r.Fatal(err)
	}
}

// rollBack leaves the first n events of the stream, as a backup of the server
// does, and others behind them.
func (r *lostRun) rollBack(n int, others ...events.Event) {
	r.Helper()
	r.lose()
	if err := r.log.Streams.EnsureRun(r.Context(), "r"); err != nil {
		r.Fatal(err)
	}
	put := func(m *nats.Msg) {
		if _, err := r.log.JetStream().PublishMsg(r.Context(), m); err != nil {
			r.Fatal(err)
		}
	}
	for _, record := range r.records[:n] {
		put(&nats.Msg{Subject: record.Subject, Header: record.Header, Data: record.Data})
	}
	for _, e := range others {
		put(e.Message())
	}
}

// another is the log of another process.
func (r *lostRun) another() *eventlog.Log {
	r.Helper()
	log, err := eventlog.New(natstest.Connect(r, r.server), r.log.Store())
	if err != nil {
		r.Fatal(err)
	}
	return log
}

// archived checks that the stream begins with the archive.
func (r *lostRun) archived() (behind []storage.Record) {
	r.Helper()
	now := r.stream()
	if len(now) < len(r.records) {
		r.Fatalf("%d events of %d are restored", len(now), len(r.records))
	}
	for i, want := range r.records {
		got := now[i]
		if got.Sequence != want.Sequence || got.Subject != want.Subject || !bytes.Equal(got.Data, want.Data) ||
			!maps.EqualFunc(got.Header, want.Header, slices.Equal[[]string]) {
			r.Fatalf("sequence %d is %s, and was %s", want.Sequence, got.ID, want.ID)
		}
	}
	return now[len(r.records):]
}

func (r *lostRun) state(want string) {
	r.Helper()
	if state, why, err := r.log.RunState(r.Context(), "r"); err != nil || state != want ||
		(want != "open") != (why != "") {
		r.Errorf("the run is %s (%q), want %s; %v", state, why, want, err)
	}
}

// TestArchiveHasTheEnd: a run whose end is in its archive is no lost one, also where its plane
// stopped before the catalogue knew the end.
func TestArchiveHasTheEnd(t *testing.T) {
	r := newLostRun(t, 4)
	closed := r.event(events.RunClosedType, "r", events.RunClosed{Reason: "all steps are taken"})
	closed.Prev = uint64(r.records[0].Sequence)
	r.append(closed)
	r.seal()
	r.lose()
	if state, why, err := r.log.RunState(t.Context(), "r"); err != nil || state != eventlog.StateArchived || why != "" {
		t.Errorf("the run is %s (%q), want %s; %v", state, why, eventlog.StateArchived, err)
	}
}

// TestRestoreBesideServices: writers that append whenever they find the run's stream get no
// sequence of its archive, and none of their events is lost.
func TestRestoreBesideServices(t *testing.T) {
	r := newLostRun(t, 400)
	r.lose()
	r.state(eventlog.StateLost)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan []string, 2)
	var appended atomic.Int64
	for w := range 2 {
		log := r.another()
		go func() {
			var ids []string
			for n := 10_000 * (w + 1); ctx.Err() == nil; n++ {
				if stored, _, err := log.Appender.Append(ctx, r.remark(n)); err == nil {
					ids = append(ids, stored.ID)
					appended.Add(1)
				}
			}
			done <- ids
		}()
	}
	if n, err := recovery.Restore(t.Context(), r.another(), "r", r.sealed, nil); err != nil || n != len(r.records) {
		t.Errorf("%d of %d events are restored: %v", n, len(r.records), err)
	}
	natstest.Eventually(t, "the writers go on", func() bool { return appended.Load() > 20 })
	stop()
	ids := append(<-done, <-done...)
	var found []string
	for _, record := range r.archived() {
		found = append(found, record.ID)
	}
	for _, id := range ids {
		if !slices.Contains(found, id) {
			t.Errorf("%s was acknowledged, and is not behind the archive", id)
		}
	}
	r.state("open")
	if findings, err := recovery.Compare(t.Context(), r.log.Archive, "r", recovery.Objects); err != nil ||
		len(findings) > 0 {
		t.Errorf("%v, %v", findings, err)
	}
}

// TestHiddenWhileItIsRestored: a restoration that ends in the middle leaves a stream that nobody
// sees, writes to or consumes from, and the next one goes on.
func TestHiddenWhileItIsRestored(t *testing.T) {
	r := newLostRun(t, 30)
	r.lose()
	second := r.sealed[1].Segment.Key
	whole, err := r.log.Store().Get(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.log.Store().Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if _, err := recovery.Restore(t.Context(), r.another(), "r", r.sealed, nil); !storage.IsUnusable(err) {
		t.Fatal(err)
	}
	if err := r.log.Store().Put(t.Context(), second, whole); err != nil {
		t.Fatal(err)
	}
	if in, hidden, err := r.log.Look(t.Context(), "r"); err != nil || !hidden || in.LastSeq == 0 ||
		in.LastSeq >= uint64(len(r.records)) {
		t.Fatalf("%+v, hidden %t, %v", in, hidden, err)
	}
	r.state(eventlog.StateRestoring)
	if runs, err := r.log.Runs(t.Context()); err != nil || len(runs) > 0 {
		t.Errorf("services see %v, %v", runs, err)
	}
	if _, _, err := r.another().Appender.Append(t.Context(), r.remark(99)); !errors.Is(err, eventlog.ErrRestoring) {
		t.Errorf("an append: %v", err)
	}
	seen := 0
	for e, err := range r.log.All(t.Context(), "r", 1) {
		if err != nil || e.Seq != uint64(seen+1) {
			t.Fatalf("sequence %d: %v", e.Seq, err)
		}
		seen++
	}
	if seen != len(r.records) {
		t.Errorf("%d events are read from the archive, want %d", seen, len(r.records))
	}
	if err := r.log.Appender.ForgetRun(t.Context(), "r", "test"); !errors.Is(err, eventlog.ErrRestoring) {
		t.Errorf("its archive is given up: %v", err)
	}
	n, err := recovery.Restore(t.Context(), r.another(), "r", r.sealed, nil)
	if err != nil || n == 0 || n >= len(r.records) {
		t.Errorf("%d events were left to restore: %v", n, err)
	}
	r.archived()
	r.append(r.remark(99))
}

// TestRestoreOfAFork: the events behind the archive's beginning are others. Restored is nothing,
// and the first of them is named; and so do audit and doctor.
func TestRestoreOfAFork(t *testing.T) {
	for name, others := range map[string]int{"shorter": 3, "longer": 40} {
		t.Run(name, func(t *testing.T) {
			r := newLostRun(t, 30)
			var fork []events.Event
			for i := range others {
				fork = append(fork, r.remark(100+i))
			}
			r.rollBack(10, fork...)
			before := len(r.stream())
			_, err := recovery.Restore(t.Context(), r.another(), "r", r.sealed, nil)
			if !errors.Is(err, eventlog.ErrForked) || !strings.Contains(err.Error(), "sequence 11:") {
				t.Errorf("restored: %v", err)
			}
			if n := len(r.stream()); n != before {
				t.Errorf("the stream has %d events, and had %d", n, before)
			}
			findings, err := recovery.Compare(t.Context(), r.log.Archive, "r", recovery.Objects)
			if err != nil || !slices.ContainsFunc(findings, func(f recovery.Finding) bool {
				return f.Kind == recovery.Fork && strings.Contains(f.Found, "sequence 11:")
			}) {
				t.Errorf("%v, %v", findings, err)
			}
			report, err := recovery.Recover(t.Context(), r.another(), "r", nil)
			if err != nil || len(report.Done) > 0 || len(report.Left) == 0 || len(r.stream()) != before {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}

// TestSealBehindAFork: nothing is sealed behind an archive that holds other events than the stream.
func TestSealBehindAFork(t *testing.T) {
	r := newLostRun(t, 30)
	var fork []events.Event
	for i := range 40 {
		fork = append(fork, r.remark(100+i))
	}
	r.rollBack(10, fork...)
	if made, err := r.another().Appender.Seal(t.Context(), "r", true); !errors.Is(err, eventlog.ErrForked) ||
		len(made) > 0 {
		t.Errorf("sealed: %v, %v", made, err)
	}
}

// TestStreamIsRolledBack: a stream that ends before its archive takes no append
// until it has its end again.
func TestStreamIsRolledBack(t *testing.T) {
	r := newLostRun(t, 30)
	r.rollBack(10)
	r.state(eventlog.StateBehind)
	for range 2 {
		if _, _, err := r.another().Appender.Append(t.Context(), r.remark(99)); !errors.Is(err, eventlog.ErrBehind) {
			t.Errorf("an append: %v", err)
		}
	}
	report, err := recovery.Recover(t.Context(), r.another(), "r", nil)
	if err != nil || len(report.Found) != 1 || report.Found[0].Kind != recovery.StreamBehind ||
		len(report.Done) != 1 || len(report.Left) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
	r.archived()
	if _, _, err := r.another().Appender.Append(t.Context(), r.remark(99)); err != nil {
		t.Error(err)
	}
}

// TestAppendToAStreamThatWasMadeAgain: an append whose stream is lost and restored while it waits
// for its answer does not go to the new stream.
func TestAppendToAStreamThatWasMadeAgain(t *testing.T) {
	r := newLostRun(t, 5)
	late := r.another()
	if _, _, err := late.Appender.Append(t.Context(), r.remark(50)); err != nil {
		t.Fatal(err)
	}
	r.seal()
	r.lose()
	swapped := make(chan error, 10)
	e := r.remark(51)
	conn := natstest.Connect(t, r.server)
	if _, err := conn.Subscribe(e.Subject(), func(m *nats.Msg) { // it takes the first request, and gives no answer
		_ = m.Sub.Unsubscribe()
		_, err := recovery.Restore(t.Context(), r.another(), "r", r.sealed, nil)
		swapped <- err
	}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	_, _, err := late.Appender.Append(t.Context(), e)
	if restored := <-swapped; restored != nil {
		t.Fatal(restored)
	}
	if !errors.Is(err, eventlog.ErrReplaced) {
		t.Errorf("the append: %v", err)
	}
	if _, err := r.another().Last(t.Context(), "r", e.Type.Kind(), e.Entity); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("it is on the new stream: %v", err)
	}
}

// TestRestoreWaitsForDeciders: the stream is shown when nobody decides any more, and not before.
func TestRestoreWaitsForDeciders(t *testing.T) {
	r := newLostRun(t, 5)
	r.lose()
	busy := errors.New("somebody decides")
	alone := func(ctx context.Context, run string) error {
		if _, err := r.log.Incarnation(ctx, run); !errors.Is(err, eventlog.ErrRestoring) {
			t.Errorf("it is shown already: %v", err)
		}
		return busy
	}
	if _, err := recovery.Restore(t.Context(), r.another(), "r", r.sealed, alone); !errors.Is(err, busy) {
		t.Error(err)
	}
	r.state(eventlog.StateRestoring)
}

// TestTwoRestore: one that restores is overtaken by another in the middle, and goes on
// before the stream is shown. It writes nothing behind what the other has written, and the
// run is as it was archived.
func TestTwoRestore(t *testing.T) {
	r := newLostRun(t, 60)
	r.lose()
	nc, line := natstest.ConnectHeld(t, r.server)
	slow, err := eventlog.New(nc, r.log.Store())
	if err != nil {
		t.Fatal(err)
	}
	line.HoldAt("HPUB rondo.restore.", 10)
	overtaken := make(chan error, 1)
	go func() { _, err := recovery.Restore(t.Context(), slow, "r", r.sealed, nil); overtaken <- err }()
	<-line.Began()
	_, err = recovery.Restore(t.Context(), r.another(), "r", r.sealed, func(context.Context, string) error {
		if late, err := line.Release(); err != nil || late == 0 {
			t.Errorf("%d bytes are late, %v", late, err)
		}
		if err := <-overtaken; err == nil {
			t.Error("the other one has restored it, too")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if behind := r.archived(); len(behind) > 0 {
		t.Errorf("%d events are behind the archive", len(behind))
	}
}
