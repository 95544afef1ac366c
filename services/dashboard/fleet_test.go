package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/pipeline/presence"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// catalogued states a fact of the catalogue.
func (d *desk) catalogued(typ events.Type, entity, ordinal string, data any) events.Event {
	d.Helper()
	return servicetest.Append(d, d.log, servicetest.Event(d, events.Catalogue, typ, entity, ordinal, data))
}

// TestFleet: the page has each runner with its sandboxes, and each inference server with its
// versions and its load, over all processes that ask it.
func TestFleet(t *testing.T) {
	d := newDesk(t)
	d.has("/fleet", "No tool runner has spoken", "None is known", "shows the present only")
	const here, there = "http://10.0.0.1:8000", "http://10.0.0.2:8000"
	for version, replica := range map[int64]string{1: there, 2: here} {
		d.catalogued(events.WeightsPublishedType, "small", events.Ordinal(version),
			events.WeightsPublished{Policy: "small", Version: version, Run: "live"})
		d.catalogued(events.WeightsActivatedType, "small", events.Ordinal(10+version),
			events.WeightsActivated{Version: version, Replica: replica})
	}
	speak := func(service, name string, r presence.Report) {
		go presence.Speak(t.Context(), d.log.Conn(), service, name, func() presence.Report { return r })
	}
	speak("toolrunner", "r1", presence.Report{Instance: "host-1",
		Runner: &presence.Runner{Slots: 4, Capacity: 128, Working: 1, Held: 1, CPUs: 8, Labels: []string{"gpu"},
			Sandboxes: []presence.Sandbox{
				{Run: "live", Rollout: "g000001-0", Working: true, Since: time.Now().Add(-3 * time.Second)},
				{Run: "live", Rollout: "g000001-1", Since: time.Now().Add(-time.Hour)}}}})
	for n := range 2 {
		speak("generator", fmt.Sprintf("g%d", n), presence.Report{Instance: "host-2", Waiting: 3,
			Servers: []presence.Server{
				{URL: here, State: presence.Active, Used: time.Now(), InFlight: 5, Allowed: 32, Engine: "vllm"},
				{URL: there, State: []string{presence.Active, presence.Open}[n], InFlight: 1, Allowed: 1,
					Failures: 5 * n, Reduced: "6 of 20 requests failed"}}})
	}
	for region, m := range map[string]presence.Mirror{"london": {Current: 2},
		"New York": {Current: 1, Versions: 1, Seconds: 75.2}, "tokyo": {Current: -1, Versions: 2, Seconds: 9}} {
		m.Policy, m.Region = "small", region
		speak(presence.MirrorService, presence.MirrorName("small", region), presence.Report{Mirror: &m})
	}
	natstest.Eventually(t, "the processes are heard", func() bool { return len(d.d.fleet.Present(time.Now())) == 6 })
	d.has("/fleet", "<strong>london</strong> small\n<small>version 2</small>",
		"<strong>New York</strong> small\n<small>version 1, 1 behind since 75 s</small>",
		"no version, 2 behind since 9 s")
	d.has("/fleet", "r1", "host-1", "1 of 4 turns run", "1 of 128 sandboxes", "gpu",
		`href="/runs/live/rollouts/g000001-0">g000001-0</a> works`, `g000001-1</a> waits`, "1h0m0s",
		"6 calls wait for one", "10 of 64 requests · asked 0 ms ago", "version 1, 1 behind",
		"5 failed in a row · fewer requests: 6 of 20 requests failed", "circuit open", "vllm")
	if now := d.d.fleet.Present(time.Now().Add(2 * presence.EndedAfter)); len(now) != 0 {
		t.Errorf("%d processes that are silent are still there", len(now))
	}
}

// TestServerIsAway: a run's page says that one of its inference servers is away, and of no other.
func TestServerIsAway(t *testing.T) {
	d := newDesk(t)
	cfg := servicetest.Config("fix")
	cfg.Endpoint = "http://10.0.0.1:8000/v1"
	servicetest.OpenRun(t, d.log, "live", cfg)
	say := func(servers ...presence.Server) {
		d.d.fleet.Take(presence.Report{Service: "generator", Name: "g1", Servers: servers}, time.Now())
	}
	say(presence.Server{URL: cfg.Endpoint, Failures: 1},
		presence.Server{URL: "http://10.0.0.9/v1", Failures: 3, Away: "of others"})
	if page := d.show("/runs/live"); strings.Contains(page, "is away") {
		t.Error("a server that answers is away, or one of another run")
	}
	d.d.outages = func() []health.Outage {
		return []health.Outage{
			{Kind: health.DiskSlow, Of: "/data", Reason: "a write took 3s <b>"},
			{Kind: health.ServerAway, Of: "http://10.0.0.9/v1"},
			{Kind: health.LogRefusesWrites, Of: events.RunStream("other")},
			{Kind: health.LogRefusesWrites, Of: events.RunStream("live"), Reason: "of this run"},
			{Kind: health.LogRefusesWrites, Of: events.IntakeStream, Reason: "of submissions"},
			{Kind: health.LogRefusesWrites, Of: events.DeadStream, Reason: "of dead letters"},
			{Kind: health.LogDegraded, Of: events.CatalogueStream, Reason: "of the catalogue"},
		}
	}
	d.has("/runs/live", "disk_slow /data, for ", "a write took 3s &lt;b&gt;", "of this run",
		"of submissions", "of dead letters", "of the catalogue")
	if page := d.show("/runs/live"); strings.Contains(page, "10.0.0.9") ||
		strings.Contains(page, events.RunStream("other")) {
		t.Error("an outage of another run is shown")
	}
	say(presence.Server{URL: cfg.Endpoint + "/", Failures: 3, Away: "connection refused <script>"})
	d.has("/runs/live", "is away for g1: 3 requests failed in a row, the last one: connection refused &lt;script&gt;")
}

// TestFleetIsBounded: however many processes speak, and whatever they say, a bounded part of it
// is kept and shown as text.
func TestFleetIsBounded(t *testing.T) {
	d := newDesk(t)
	for n := range 3 * maxProcesses {
		d.d.fleet.Take(presence.Report{Service: "toolrunner", Name: fmt.Sprintf("r%03d", n),
			Instance: evils[n%len(evils)], Runner: &presence.Runner{Labels: evils}}, time.Now().Add(time.Duration(n)))
	}
	if n := len(d.d.fleet.Present(time.Now())); n != maxProcesses {
		t.Errorf("%d processes are kept", n)
	}
	if page := d.show("/fleet"); strings.Contains(page, "<script>alert") || strings.Contains(page, "<img") ||
		strings.Contains(page, "r000") {
		t.Error("the page shows what it must not")
	}
}

// TestPlaneOfThePast: weights with their bytes, and dead letters, as they are and as they were.
func TestPlaneOfThePast(t *testing.T) {
	d := newDesk(t)
	d.openRun()
	d.catalogued(events.WeightsSubmittedType, "small",
		"s1", events.WeightsSubmitted{Version: 1, Run: "live",
			Files: []events.WeightsFile{{Name: "a", Blob: servicetest.Blob(t, d.log.Store(), make([]byte, 3<<20))}}})
	d.catalogued(events.WeightsPublishedType, "small",
		"1", events.WeightsPublished{Policy: "small", Version: 1, Run: "live", ThroughStep: 7})
	before := d.catalogued(events.WeightsActivatedType, "small",
		"a1", events.WeightsActivated{Version: 1, Replica: "replica-one"})
	d.catalogued(events.DeadLetteredType, "RONDO_IN-5",
		"0", events.DeadLettered{Stream: events.IntakeStream, Sequence: 5, Subject: "rondo.in.live.run.live.paused",
			Reason: "no such thing"})
	d.has("/plane", "replica-one", "3.0 MiB", "no such thing", "the file <code>dashboard.token")
	if page := d.show(fmt.Sprintf("/plane?at=%d", before.Seq)); strings.Contains(page, "no such thing") ||
		!strings.Contains(page, "replica-one") || !strings.Contains(page, "as it was at event") {
		t.Errorf("the past:\n%s", page)
	}
	if page := d.show("/plane?at=1"); strings.Contains(page, "replica-one") ||
		strings.Contains(page, "dashboard.token") {
		t.Errorf("the first event:\n%s", page)
	}
}
