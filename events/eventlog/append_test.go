package eventlog_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
)

// openLog is a log with the run's stream.
func openLog(t testing.TB) *eventlog.Log {
	t.Helper()
	log := natstest.Log(t)
	if err := log.Streams.EnsureRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	return log
}

func mustAppend(t testing.TB, log *eventlog.Log, e events.Event) events.Event {
	t.Helper()
	stored, adopted, err := log.Appender.Append(t.Context(), e)
	if err != nil || adopted {
		t.Fatalf("append %s: adopted %v, %v", e.ID, adopted, err)
	}
	return stored
}

// chain appends links to a rollout and returns them as they are stored.
func chain(t testing.TB, log *eventlog.Log, rollout string, ordinals ...string) []events.Event {
	t.Helper()
	var links []events.Event
	prev := uint64(0)
	for _, ordinal := range ordinals {
		e := note(t, rollout, ordinal, "link "+ordinal)
		e.Prev = prev
		stored := mustAppend(t, log, e)
		prev = stored.Seq
		links = append(links, stored)
	}
	return links
}

func TestAppendThatLostTheRace(t *testing.T) {
	t.Parallel()
	log := openLog(t)
	links := chain(t, log, "g000001-0", "a", "b", "c")

	same := note(t, "g000001-0", "b", "another content")
	same.Prev = links[0].Seq
	stored, adopted, err := log.Appender.Append(t.Context(), same)
	if err != nil || !adopted {
		t.Fatalf("the same event: adopted %v, %v", adopted, err)
	}
	if stored.Seq != links[1].Seq || string(stored.Data) != string(links[1].Data) {
		t.Errorf("adopted %s at %d, want what the log holds: %s at %d", stored.Data, stored.Seq,
			links[1].Data, links[1].Seq)
	}

	other := note(t, "g000001-0", "x", "too late")
	other.Prev = links[0].Seq
	var conflict *eventlog.Conflict
	if _, _, err := log.Appender.Append(t.Context(), other); !errors.As(err, &conflict) {
		t.Fatalf("another event: %v, want a conflict", err)
	}
	if conflict.Winner.ID != links[1].ID || conflict.Winner.Seq != links[1].Seq {
		t.Errorf("the winner is %s at %d, want the link that follows directly: %s at %d", conflict.Winner.ID,
			conflict.Winner.Seq, links[1].ID, links[1].Seq)
	}

	first := note(t, "g000001-0", "y", "not the first")
	if _, _, err := log.Appender.Append(t.Context(), first); !errors.As(err, &conflict) ||
		conflict.Winner.Seq != links[0].Seq {
		t.Errorf("a second first link: %v", err)
	}
}

func TestAppendBehindWhatIsNoLink(t *testing.T) {
	t.Parallel()
	log := openLog(t)
	links := chain(t, log, "g000001-0", "a")
	foreign := chain(t, log, "g000001-1", "a")
	more := note(t, "g000001-0", "b", "b")
	more.Prev = links[0].Seq
	mustAppend(t, log, more)

	for name, prev := range map[string]uint64{"another chain's link": foreign[0].Seq,
		"a sequence that is yet to come": 99} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := note(t, "g000001-0", "c", "c")
			e.Prev = prev
			if _, _, err := log.Appender.Append(t.Context(), e); !errors.Is(err, eventlog.ErrNoLink) {
				t.Errorf("append behind %d: %v", prev, err)
			}
		})
	}
}

func TestAppendToMissingRun(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := note(t, "g000001-0", "a", "")
	if _, _, err := log.Appender.Append(ctx, e); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("Append: %v", err)
	}
	if _, _, err := log.Appender.AppendLast(ctx, e, func(*events.Event) error { return nil }); !errors.Is(err,
		eventlog.ErrNotFound) {
		t.Errorf("AppendLast: %v", err)
	}
}

func TestAppendLast(t *testing.T) {
	t.Parallel()
	log := openLog(t)
	var seen []string
	check := func(last *events.Event) error {
		if last == nil {
			seen = append(seen, "none")
			return nil
		}
		seen = append(seen, last.ID)
		return nil
	}
	a := note(t, "g000001-0", "a", "")
	b := note(t, "g000001-0", "b", "")
	for _, e := range []events.Event{a, b} {
		if _, _, err := log.Appender.AppendLast(t.Context(), e, check); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := strings.Join(seen, " "), "none "+a.ID; got != want {
		t.Errorf("check saw %s, want %s", got, want)
	}
	if stored, adopted, err := log.Appender.AppendLast(t.Context(), b, check); err != nil ||
		!adopted || stored.Seq != 2 {
		t.Errorf("the same again: sequence %d, adopted %v, %v", stored.Seq, adopted, err)
	}
	refused := errors.New("refused")
	c := note(t, "g000001-0", "c", "")
	if _, _, err := log.Appender.AppendLast(t.Context(), c,
		func(*events.Event) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a refusal: %v", err)
	}
	// A writer that is faster between check and append makes check look again.
	raced := false
	_, _, err := log.Appender.AppendLast(t.Context(), c, func(last *events.Event) error {
		if !raced {
			raced = true
			faster := note(t, "g000001-0", "faster", "")
			faster.Prev = last.Seq
			mustAppend(t, log, faster)
		}
		return check(last)
	})
	if err != nil {
		t.Fatal(err)
	}
	if last := seen[len(seen)-1]; !strings.HasSuffix(last, "/faster") {
		t.Errorf("check was not asked about the faster link but about %s", last)
	}
	if n := checkStream(t, log, &acknowledged{}); n != 4 {
		t.Errorf("%d events, want 4", n)
	}
}

func TestAppendOnce(t *testing.T) {
	t.Parallel()
	log := openLog(t)
	links := chain(t, log, "g000001-0", "a", "b", "c")
	again := note(t, "g000001-0", "a", "repeated")
	stored, err := log.Appender.AppendOnce(t.Context(), again, links[0].Time, nil)
	if err != nil || stored.Seq != links[0].Seq || string(stored.Data) != string(links[0].Data) {
		t.Errorf("a link three back: sequence %d: %s, %v", stored.Seq, stored.Data, err)
	}
	// The id is not looked for beyond the moment since when it can have been stated.
	fresh, err := log.Appender.AppendOnce(t.Context(), again, time.Now().Add(time.Hour), nil)
	if err != nil || fresh.Seq != 4 {
		t.Errorf("beyond the moment: sequence %d, %v", fresh.Seq, err)
	}
}

func TestClaimCheck(t *testing.T) {
	t.Parallel()
	log := openLog(t)
	for name, size := range map[string]int{"as large as may travel": events.MaxPayload,
		"one byte more": events.MaxPayload + 1, "3 MiB": 3 << 20} {
		t.Run(name, func(t *testing.T) {
			e := note(t, events.RolloutID("g000001", size), "a", "")
			e.Data = []byte(`{"text":"` + strings.Repeat("x", size-len(`{"text":""}`)) + `"}`)
			stored := mustAppend(t, log, e)
			raw, err := log.JetStream().Stream(t.Context(), events.RunStream(run))
			if err != nil {
				t.Fatal(err)
			}
			msg, err := raw.GetMsg(t.Context(), stored.Seq)
			if err != nil {
				t.Fatal(err)
			}
			if large := size > events.MaxPayload; large != (len(msg.Data) < 1024) ||
				large != (len(msg.Header[events.HeaderDataRef]) == 1) {
				t.Errorf("%d bytes travelled, reference %v", len(msg.Data), msg.Header[events.HeaderDataRef])
			}
			checkBody(t, log, e, stored.Seq)
		})
	}
}

// checkBody reads an event in all the ways there are.
func checkBody(t *testing.T, log *eventlog.Log, want events.Event, seq uint64) {
	t.Helper()
	last, err := log.Last(t.Context(), run, want.Type.Kind(), want.Entity)
	if err != nil || !bytes.Equal(last.Data, want.Data) {
		t.Errorf("Last: %d bytes, %v", len(last.Data), err)
	}
	e, err := log.Event(t.Context(), run, seq)
	if err != nil || !bytes.Equal(e.Data, want.Data) {
		t.Errorf("Event: %d bytes, %v", len(e.Data), err)
	}
	for e, err := range log.All(t.Context(), run, seq) {
		if err != nil || e.Seq == seq && !bytes.Equal(e.Data, want.Data) {
			t.Errorf("All: %d bytes, %v", len(e.Data), err)
		}
	}
}

func TestFullStream(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t)
	// An operator chose a small limit; EnsureRun leaves it as it is.
	_, err := log.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{
		Name: events.RunStream(run), Subjects: []string{"rondo.v1." + run + ".>"}, MaxBytes: 20 << 10,
		Discard: jetstream.DiscardNew, AllowDirect: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Streams.EnsureRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	acked := &acknowledged{events: map[uint64]events.Event{}}
	prev := uint64(0)
	for i := 0; ; i++ {
		e := note(t, "g000001-0", events.Ordinal(i), strings.Repeat("x", 1000))
		e.Prev = prev
		stored, _, err := log.Appender.Append(t.Context(), e)
		if err != nil {
			if !errors.Is(err, eventlog.ErrStreamFull) {
				t.Fatalf("append %d: %v", i, err)
			}
			break
		}
		if i > 20 {
			t.Fatal("20 KiB hold more than 20 KiB")
		}
		acked.add(t, stored)
		prev = stored.Seq
	}
	fill, err := log.Fill(t.Context(), run)
	if err != nil || fill < 0.8 || fill > 1 {
		t.Errorf("a full stream is filled to %g, %v", fill, err)
	}
	if n := checkStream(t, log, acked); n < 10 {
		t.Errorf("only %d events found room", n)
	}
}

func TestReservedRunNames(t *testing.T) {
	t.Parallel()
	log := natstest.Log(t)
	for _, name := range []string{"_", "IN", "DEAD", "", "a.b", "a b", "a*", ">", strings.Repeat("x", 65)} {
		if err := log.Streams.EnsureRun(t.Context(), name); err == nil {
			t.Errorf("a run may be called %q", name)
		}
	}
	for _, name := range []string{"a", "in", "IN-1", "A_b-9", strings.Repeat("x", 64)} {
		if err := log.Streams.EnsureRun(t.Context(), name); err != nil {
			t.Errorf("run %q: %v", name, err)
		}
	}
	runs, err := log.Runs(t.Context())
	if err != nil || len(runs) != 5 {
		t.Errorf("runs %v, %v", runs, err)
	}
}

// An append behind another one of its chain that is still under way is refused with a
// code that is no verdict.
func TestAppendInFlightIsNoVerdict(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t)
	real, err := eventlog.New(natstest.Connect(t, server), natstest.Store(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := real.Streams.EnsureRun(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	// A stream answers only what it knows; this one of the test's own answers first
	// that it is busy, then not.
	nc := natstest.Connect(t, server)
	codes := []string{"10164", "10167", "10163", "10164"}
	asked := 0
	_, err = nc.Subscribe("rondo.v1."+run+".>", func(m *nats.Msg) {
		asked++
		if asked <= len(codes) {
			_ = m.Respond([]byte(`{"error":{"code":400,"err_code":` + codes[asked-1] +
				`,"description":"wrong last sequence"}}`))
			return
		}
		_ = m.Respond([]byte(`{"stream":"` + events.RunStream(run) + `","seq":7}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	stored, adopted, err := real.Appender.Append(t.Context(), note(t, "g000001-0", "a", ""))
	if err != nil || adopted || stored.Seq != 7 {
		t.Errorf("sequence %d, adopted %v, %v", stored.Seq, adopted, err)
	}
	if asked != len(codes)+1 {
		t.Errorf("asked %d times, want %d", asked, len(codes)+1)
	}
}
