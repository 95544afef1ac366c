package generator

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/presence"
)

// TestPeers: those who have spoken lately count, and the first by name knows that it is.
func TestPeers(t *testing.T) {
	now := time.Now()
	p := newPeers("b", 64)
	want := func(n, slots int, first bool) {
		t.Helper()
		if gotN, gotSlots, gotFirst := p.count(now); gotN != n || gotSlots != slots || gotFirst != first {
			t.Errorf("%d generators with %d slots, first: %t", gotN, gotSlots, gotFirst)
		}
	}
	want(1, 64, true)
	p.others.Take(presence.Report{Name: "a", Slots: 32}, now)
	p.others.Take(presence.Report{Name: "c", Slots: 16}, now)
	p.others.Take(presence.Report{Name: "b", Slots: 64}, now)
	want(3, 112, false)
	now = now.Add(presence.EndedAfter)
	p.others.Take(presence.Report{Name: "c", Slots: 16}, now)
	now = now.Add(time.Second)
	want(2, 80, true)
}

// TestScarceSlots: a run that keeps more rollouts under way than there are slots is told once, and
// again when it has become so again.
func TestScarceSlots(t *testing.T) {
	var log bytes.Buffer
	s := &Service{peers: newPeers("a", 64), logger: slog.New(slog.NewTextHandler(&log, nil))}
	cfg := runfile.DefaultRunConfig()
	cfg.InFlight = 512
	told := func(at time.Duration, want int) {
		t.Helper()
		s.compareSlots("r", cfg, s.peers.began.Add(at))
		if n := strings.Count(log.String(),
			`msg="generator slots scarce" run=r rollouts_at_once=512 slots=64 generators=1`); n != want {
			t.Errorf("after %s it was told %d times, want %d:\n%s", at, n, want, &log)
		}
	}
	told(time.Second, 0) // others may not have spoken yet
	told(presence.EndedAfter, 1)
	told(2*presence.EndedAfter, 1)
	s.peers.others.Take(presence.Report{Name: "b", Slots: 448}, s.peers.began.Add(2*presence.EndedAfter))
	told(3*presence.EndedAfter, 1)
	told(4*presence.EndedAfter, 2) // the other one has gone
}
