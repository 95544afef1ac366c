package auth

import (
	"testing"
	"time"

	"github.com/rondo-rl/rondo/auth"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/pipeline/presence"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestMirrorAsOutsider: the dashboard hears how far a mirror is behind across accounts, and a
// mirror speaks of its own policy alone.
func TestMirrorAsOutsider(t *testing.T) {
	t.Parallel()
	dir := initKeys(t)
	s := serve(t, dir, auth.ConfigFile)
	servicetest.OpenRun(t, adminLog(t, s, dir), run, servicetest.Config("fix"))
	command(t, "auth", "user", "engine", "--out", dir, "--role", "inference", "--run", run, "--policy", "small")
	heard := make(chan presence.Report, 10)
	stop, err := presence.Hear(connect(t, s, creds(dir, topology.Dashboard)).Conn,
		func(r presence.Report) { heard <- r })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	engine := connect(t, s, creds(dir, "engine"))
	for subject, want := range map[string]bool{
		topology.MirrorSubject + "small.x": true, topology.MirrorSubject + "large.x": false,
		topology.PresenceSubject + "toolrunner.x": false,
	} {
		if got := engine.mayPublish(t, subject); got != want {
			t.Errorf("a mirror may publish %s: %v", subject, got)
		}
	}
	if engine.maySubscribe(t, topology.MirrorSubject+"*.*") {
		t.Error("a mirror may hear others")
	}
	mirror := presence.Mirror{Policy: "small", Region: "london", Current: 3, Versions: 1, Seconds: 2}
	go presence.Speak(t.Context(), engine.Conn, presence.MirrorService, presence.MirrorName("small", "london"),
		func() presence.Report { return presence.Report{Mirror: &mirror} })
	select {
	case r := <-heard:
		if r.Mirror == nil || *r.Mirror != mirror {
			t.Errorf("heard %+v", r)
		}
	case <-time.After(time.Minute):
		t.Error("the dashboard hears nothing")
	}
}
