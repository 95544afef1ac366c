package fleet

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/inference"
)

// TestLook: servers are told as they are now, without the passwords in their addresses, and what is
// told is nobody's to change.
func TestLook(t *testing.T) {
	f, err := New(DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	for address, change := range map[string]func(*replica){
		"http://a": func(r *replica) { r.inFlight, r.current, r.allowed, r.versions["small"] = 3, 3, 8, 12 },
		"http://b": func(r *replica) {
			r.open, r.failures, r.until = true, 5, time.Now().Add(time.Hour)
			r.last = &inference.Failure{Status: 500, Err: errors.New("no room")}
		},
		"http://user:secret@c": func(r *replica) { r.until = time.Now().Add(-time.Second) },
	} {
		change(f.replica(address, ""))
	}
	f.mu.Unlock()
	states, waiting := f.Look()
	if len(states) != 3 || waiting != 0 {
		t.Fatalf("%d servers, %d wait", len(states), waiting)
	}
	a, b, c := states[0], states[1], states[2]
	if a.InFlight != 3 || a.Allowed != 8 || a.Versions["small"] != 12 || a.Open || a.Resting {
		t.Errorf("a is %+v", a)
	}
	if !b.Open || !b.Resting || b.Failures != 5 || !strings.Contains(b.Away, "no room") || a.Away+c.Away != "" {
		t.Errorf("b is %+v", b)
	}
	if c.Resting || strings.Contains(c.URL, "secret") {
		t.Errorf("c is %+v", c)
	}
	a.Versions["small"] = 0
	for about, away := range map[*inference.Failure]bool{{Away: true, Err: errors.New("refused")}: true,
		{Status: 502, Err: errors.New("bad")}: false} {
		f.mu.Lock()
		f.replica("http://a", "").failures, f.replica("http://a", "").last = 1, about
		f.mu.Unlock()
		if now, _ := f.Look(); now[0].Away != "" != away {
			t.Errorf("behind %v it is away: %q", about, now[0].Away)
		}
	}
	if again, _ := f.Look(); again[0].Versions["small"] != 12 {
		t.Error("what was told can be changed")
	}
}
