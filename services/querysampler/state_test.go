package querysampler

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
)

func TestFullStreamPauses(t *testing.T) {
	d := NewDecider(testRun, config(nil))
	if want := topology.Stream(events.RunStream(testRun)).MaxBytes; d.maxBytes != want {
		t.Errorf("a run's stream may hold %d bytes, want %d", d.maxBytes, want)
	}
	if sized := NewDecider(testRun,
		config(func(c *runfile.RunConfig) { c.Log.MaxBytes = 8 << 30 })); sized.maxBytes != 8<<30 {
		t.Errorf("a stream of 8 GiB may hold %d bytes", sized.maxBytes)
	}
	d.maxBytes = 1 << 20
	l := decidertest.New(t, testRun, d)
	opened(l)
	l.Settle()
	size := int64(0)
	for _, e := range l.Events {
		size += int64(len(e.Data)) + eventOverhead
	}
	body := events.RolloutAnnotated{Text: strings.Repeat("x", 10000)}
	for float64(size) <= 0.7*(1<<20) {
		if facts := l.Decide(); len(facts) != 0 {
			t.Fatalf("at %d of %d bytes: %v", size, d.maxBytes, decidertest.Names(facts))
		}
		size += int64(len(l.Happen(events.RolloutAnnotatedType, "g000001-0", body).Data)) + eventOverhead
	}
	facts := l.Settle()
	if got := decidertest.Names(facts); !slices.Equal(got, []string{"run.paused r"}) {
		t.Fatalf("of a full stream: %v", got)
	}
	if p := decidertest.Data[events.RunPaused](t, facts[0]); !strings.Contains(p.Reason, "7") ||
		!strings.Contains(p.Reason, "full") {
		t.Errorf("reason %q", p.Reason)
	}
	first := facts[0].ID
	l.Happen(events.RunResumedType, testRun, events.RunResumed{})
	if facts = l.Settle(); len(facts) != 1 || facts[0].ID == first {
		t.Errorf("resumed while it is still full: %v", decidertest.Names(facts))
	}
}

// A body in the store fills the store and not the stream.
func TestLargeBodiesDoNotFillTheStream(t *testing.T) {
	l := newLog(t, nil)
	opened(l)
	l.Settle()
	body := events.RolloutAnnotated{Text: strings.Repeat("x", 4*events.MaxPayload)}
	for range 50 {
		l.Happen(events.RolloutAnnotatedType, "g000001-0", body)
	}
	s, _, err := stateOf(l)
	if err != nil || s.Bytes > 100<<10 {
		t.Errorf("50 references count as %d bytes, %v", s.Bytes, err)
	}
}

// What describes something that is over leaves the state, whatever way it ends.
func TestStateShrinks(t *testing.T) {
	l := newLog(t, func(c *runfile.RunConfig) { c.Steps = 40 })
	opened(l)
	step := int64(0)
	var waiting []string
	for range 200 {
		for _, f := range l.Settle() {
			if f.Type == events.RolloutStartedType {
				l.Happen(events.RolloutScoredType, f.Entity, events.RolloutScored{})
			}
			if f.Type != events.GroupOpenedType {
				continue
			}
			if strings.HasSuffix(f.Entity, "7") {
				l.Happen(events.GroupDroppedType, f.Entity, events.GroupDropped{Feed: "trainer"})
				continue
			}
			waiting = append(waiting, f.Entity)
		}
		for len(waiting) >= 2 {
			step++
			ready(l, "trainer", step, waiting[:2]...)
			published(l, testRun, step, step)
			waiting = waiting[2:]
		}
	}
	s, _, err := stateOf(l)
	if err != nil || s.ThroughStep != 40 || !s.Closed || s.Uncovered != 0 || s.Useful != 80 {
		t.Errorf("at the end: %+v, %v", s, err)
	}
	for _, prefix := range []string{halfOpen, flying, due, uncovered, counted} {
		if n := countKeys(t, l, prefix); n != 0 {
			t.Errorf("%d entries of %s are left", n, prefix)
		}
	}
}

// The estimate of what an event takes on disk must not be too low: it stops the run
// before the stream is full.
func TestOverheadIsEnough(t *testing.T) {
	cfg := config(nil)
	d := NewDecider(strings.Repeat("r", 64), cfg)
	l := decidertest.New(t, d.run, d)
	l.Happen(events.RunOpenedType, d.run, events.RunOpened{Config: cfg})
	l.Settle()
	for _, e := range l.Events {
		e.Source, e.TraceParent, e.DecidedAt, e.AsOf = topology.QuerySampler, strings.Repeat("0", 55), l.Now, e.Seq
		msg := e.Message()
		if size := int64(msg.Size()); size > int64(len(e.Data))+eventOverhead {
			t.Errorf("%s takes %d bytes with a body of %d", e.ID, size, len(e.Data))
		}
	}
	ref, err := json.Marshal(storage.Ref{Key: "blobs/sha256/ab/" + strings.Repeat("a", 64),
		SHA256: strings.Repeat("a", 64), Size: 1 << 40})
	if err != nil || len(ref) > claimCheck {
		t.Errorf("a reference takes %d bytes, %v", len(ref), err)
	}
}

func stateOf(l *decidertest.Log) (state, bool, error) {
	return projection.Get[state](l.View(), stateKey)
}

func countKeys(t *testing.T, l *decidertest.Log, prefix string) (n int) {
	t.Helper()
	for _, err := range projection.Scan[json.RawMessage](l.View(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestFullStreamThatForgets: a run whose stream is full waits for the archiver to make room, and
// pauses only where nothing can leave any more.
func TestFullStreamThatForgets(t *testing.T) {
	for name, test := range map[string]struct {
		flying bool  // rollouts are in flight
		left   int64 // what is left when events have left the stream; 0: none have
		want   string
	}{
		"the archiver has not come yet":        {want: ""},
		"there is room again":                  {left: 1 << 10, want: string(events.GroupOpenedType)},
		"what is left fills it":                {left: 1 << 20, want: string(events.RunPausedType)},
		"what is left fills it and may end":    {flying: true, left: 1 << 20, want: ""},
		"rollouts end before the archiver has": {flying: true, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDecider(testRun, config(func(c *runfile.RunConfig) { c.Log.Keep = runfile.KeepOpen }))
			d.maxBytes = 1 << 20
			l := decidertest.New(t, testRun, d)
			opened(l)
			if test.flying {
				l.Settle()
			}
			body := events.RolloutAnnotated{Text: strings.Repeat("x", 100000)}
			for range 8 {
				l.Happen(events.RolloutAnnotatedType, "g000001-0", body)
			}
			if test.left > 0 {
				l.Happen(events.LogPurgedType, testRun, events.LogPurged{Events: 1, Bytes: test.left})
			}
			got := ""
			if facts := l.Settle(); len(facts) > 0 {
				got = string(facts[0].Type)
			}
			if got != test.want {
				t.Errorf("decides %q first, want %q", got, test.want)
			}
		})
	}
}
