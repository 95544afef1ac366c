package presence_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline/presence"
)

// TestSpeakAndHear: a process is heard as it spoke, and nothing is heard of reports that are
// malformed, too large, or of another one than their subject says.
func TestSpeakAndHear(t *testing.T) {
	nc := natstest.Log(t).Conn()
	before := nc.NumSubscriptions()
	heard := make(chan presence.Report, 100)
	stop, err := presence.Hear(nc, func(r presence.Report) { heard <- r })
	if err != nil {
		t.Fatal(err)
	}
	say := func(subject string, body any) {
		data, ok := body.([]byte)
		if !ok {
			data, _ = json.Marshal(body)
		}
		if err := nc.Publish(topology.PresenceSubject+subject, data); err != nil {
			t.Fatal(err)
		}
	}
	long := presence.Report{Service: "s", Name: "n", Runner: &presence.Runner{Sandboxes: make([]presence.Sandbox,
		presence.MaxSandboxes+1)}}
	say("s.n", []byte("{"))
	say("s.n", presence.Report{Service: "s", Name: "other"})
	say("s.n", presence.Report{Service: "s", Name: "n", Instance: strings.Repeat("x", 1000)})
	say("s.n", presence.Report{Service: "s", Name: "n", Servers: make([]presence.Server, presence.MaxServers+1)})
	say("s.n", long)
	say("mirror.small.x", presence.Report{Service: "mirror", Name: "small.x",
		Mirror: &presence.Mirror{Policy: "large", Region: "x"}})
	say("s.n", presence.Report{Service: "s", Name: "n", Mirror: &presence.Mirror{Policy: "large", Region: "x"}})
	say("s.n", append([]byte(`{"service":"s","name":"n","instance":"`), make([]byte, 200<<10)...))
	go presence.Speak(t.Context(), nc, "toolrunner", "r1", func() presence.Report {
		return presence.Report{Instance: "host", Runner: &presence.Runner{Slots: 3,
			Sandboxes: []presence.Sandbox{{Run: "live", Rollout: "g000001-0", Working: true}}}}
	})
	r := <-heard
	if r.Service != "toolrunner" || r.Name != "r1" || r.Instance != "host" || r.Runner.Slots != 3 ||
		len(r.Runner.Sandboxes) != 1 || time.Since(r.Started) > time.Minute {
		t.Errorf("heard %+v", r)
	}
	stop()
	if left := nc.NumSubscriptions() - before; left != 0 {
		t.Errorf("%d subscriptions are left", left)
	}
}

// TestNames: every name of a process fits a subject.
func TestNames(t *testing.T) {
	for _, instance := range []string{"host-12", "node1.corp.example-7", "a b*>.ä"} {
		if name := presence.Name(instance); !runfile.ValidToken(name) {
			t.Errorf("%q became %q", instance, name)
		}
	}
}
