package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestHome: the first page shows what runs with its figures, what waits for somebody and what is
// wrong now, and none of what is closed.
func TestHome(t *testing.T) {
	d := newDesk(t)
	d.openRun()
	d.group(1, "first", 1, 0)
	d.batch(1, 1, 0.5)
	d.group(2, "second", 1, 1)
	d.batch(2, 2, 1)
	d.state(events.GroupOpenedType, "g000003", "0", events.GroupOpened{Task: "fix", Size: 1})
	servicetest.StartRollout(d, d.log, "live", "g000003-0", "fix")
	quiet := d.show("/")
	for _, want := range []string{"Running", `aria-label="Mean reward of steps 1 to 2: from 0.500 to 1, now 1"`,
		`points="0.0,34.0 160.0,2.0"`, "<dt>in flight</dt><dd>5</dd>", "<dt>step</dt><dd>2</dd>",
		"<dt>scored per minute</dt><dd>4</dd>"} {
		if !strings.Contains(quiet, want) {
			t.Errorf("the page does not say %q:\n%s", want, quiet)
		}
	}
	if strings.Contains(quiet, "Wrong now") || strings.Contains(quiet, "Waits for you") {
		t.Errorf("nothing is wrong, and nothing waits:\n%s", quiet)
	}

	servicetest.OpenRun(t, d.log, "stuck", servicetest.Config("fix"))
	servicetest.Append(t, d.log, servicetest.Event(t, "stuck", events.RunPausedType, "stuck",
		"p", events.RunPaused{Reason: "no <b>success</b> in 20 groups."}))
	servicetest.OpenRun(t, d.log, "over", servicetest.Config("fix"))
	closed := events.RunClosed{Reason: "done"}
	servicetest.Append(t, d.log, servicetest.Event(t, "over", events.RunClosedType, "over", "c", closed))
	servicetest.Append(t, d.log, servicetest.Event(t, events.Catalogue, events.RunClosedType, "over", "c", closed))
	servicetest.Append(t, d.log, servicetest.Event(t, events.Catalogue, events.WeightsRejectedType, "small",
		"r", events.WeightsRejected{Version: 3, Reason: "a tensor is missing"}))
	servicetest.Append(t, d.log, servicetest.Event(t, events.Catalogue, events.DeadLetteredType, "letters",
		"1", events.DeadLettered{
			Stream: events.IntakeStream, Subject: "rondo.in.live.rollout.x.annotated", Reason: "no such rollout",
			Body: new(servicetest.Blob(t, d.log.Store(), []byte("{}")))}))
	d.d.outages = func() []health.Outage {
		return []health.Outage{{Kind: health.DiskFull, Of: "disk", Since: time.Now(), Reason: "no <i>space</i> left"}}
	}
	d.has("/", "Waits for you", "Run stuck is paused: no &lt;b&gt;success&lt;/b&gt; in 20 groups.",
		`href="/runs/stuck#act-h"`, "refused a submission within a day",
		"Wrong now", "no &lt;i&gt;space&lt;/i&gt; left",
		"The last weights of policy small were rejected: a tensor is missing.")
	if cards := strings.Count(d.show("/"), `class="spark"`); cards != 1 {
		t.Errorf("%d curves: a run that is paused or closed does not run", cards)
	}
}

// TestHomeOfManyRuns: the page has the newest runs that are open, counts the others, and does not
// wait for what is not folded.
func TestHomeOfManyRuns(t *testing.T) {
	d := newDesk(t)
	for n := range maxLooked + 3 {
		servicetest.OpenRun(t, d.log, fmt.Sprintf("run-%03d", n), servicetest.Config("fix"))
	}
	d.has("/", fmt.Sprintf("<p>%d older runs are open, too.</p>", maxLooked-maxRunning),
		"<p>3 still older ones were never closed", fmt.Sprintf(`href="/runs/run-%03d"`, maxLooked+2))
	large := newBulk(t, d.log, "large")
	large.groups(0, 40)
	d.d.cardTime = 0
	d.has("/", "It is being read; the figures follow.")
	natstest.Eventually(t, "the run is folded behind the page, though nobody looks again", func() bool {
		b, release, err := d.d.shelf.hold("large", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		return b.position() == large.seq
	})
	if page := d.show("/"); strings.Contains(page, "It is being read") ||
		!strings.Contains(page, `aria-label="Mean reward of steps`) {
		t.Errorf("the run is folded:\n%s", page)
	}
}

// TestTooLongRun: a run that is too long for a book that is kept is folded once, and its card leads
// to its page. It takes no other book away. A new run of its name is folded again.
func TestTooLongRun(t *testing.T) {
	d := newDesk(t)
	newBulk(t, d.log, "large").groups(0, 20)
	d.openRun()
	d.group(1, "first", 1, 0)
	d.d.shelf.most = 100 // the large run has 180 rollouts and groups, the other one has three
	const long = "The run is too long to be read here"
	d.has("/", `aria-label="Mean reward of steps 1 to 5`, "<dt>scored per minute</dt>")
	kept := func(run string) bool {
		d.d.shelf.mu.Lock()
		defer d.d.shelf.mu.Unlock()
		return d.d.shelf.books[place{run, 0}] != nil
	}
	if kept("large") || !kept("live") {
		t.Errorf("the long run is kept: %v, the short one: %v", kept("large"), kept("live"))
	}
	for range 2 {
		if page := d.show("/"); strings.Count(page, long) != 1 || strings.Count(page, "<dt>in flight</dt>") != 1 {
			t.Errorf("one run is too long, and the other one is not:\n%s", page)
		}
	}
	d.has("/runs/large", "g000020-7")
	if err := d.log.Streams.DeleteRun(t.Context(), "large"); err != nil {
		t.Fatal(err)
	}
	servicetest.OpenRun(t, d.log, "large", servicetest.Config("fix"))
	if page := d.show("/"); strings.Contains(page, long) {
		t.Errorf("the new run is short:\n%s", page)
	}
}

// TestRejectedWeights: rejections stand behind all else that is wrong, and those of policies that
// nobody trains are left out.
func TestRejectedWeights(t *testing.T) {
	d := newDesk(t)
	reject := func(policy, run string) {
		cfg := servicetest.Config("fix")
		cfg.Policy = policy
		servicetest.OpenRun(t, d.log, run, cfg)
		servicetest.Append(t, d.log, servicetest.Event(t, events.Catalogue, events.WeightsRejectedType, policy,
			"r", events.WeightsRejected{Version: 3, Reason: "a tensor is missing"}))
	}
	for n := range maxRemarks + 1 {
		reject(fmt.Sprintf("used-%d", n), fmt.Sprintf("open-%d", n))
	}
	reject("old", "over")
	servicetest.CloseRun(t, d.log, "over")
	d.d.outages = func() []health.Outage {
		return []health.Outage{{Kind: health.DiskFull, Of: "disk", Since: time.Now(), Reason: "no space left"}}
	}
	d.has("/", "no space left", "policy used-0 were rejected",
		fmt.Sprintf("policy used-%d were rejected", maxRemarks-2), "<li>2 more</li>")
	d.d.outages = func() []health.Outage { return nil }
	for n := range maxRemarks {
		servicetest.CloseRun(t, d.log, fmt.Sprintf("open-%d", n))
	}
	if page := d.show("/"); strings.Count(page, "were rejected") != 1 ||
		!strings.Contains(page, fmt.Sprintf("policy used-%d were rejected", maxRemarks)) {
		t.Errorf("one policy is trained:\n%s", page)
	}
}

// TestUnreadableRuns: what cannot be read of a run hides no other one.
func TestUnreadableRuns(t *testing.T) {
	d := newDesk(t)
	d.openRun()
	d.group(1, "first", 1, 0)
	d.batch(1, 1, 0.5)
	spoil := func(run string, typ events.Type, entity string) {
		servicetest.OpenRun(t, d.log, run, servicetest.Config("fix"))
		e := servicetest.Event(t, run, typ, entity, "x", nil)
		e.Data = json.RawMessage(`{"reason":7,"step":"<b>"}`)
		servicetest.Append(t, d.log, e)
	}
	spoil("halted", events.RunPausedType, "halted")
	spoil("torn", events.BatchReadyType, "trainer")
	spoil("done", events.RunClosedType, "done")
	closed := servicetest.Event(t, events.Catalogue, events.RunClosedType, "done", "c", events.RunClosed{})
	servicetest.Append(t, d.log, closed)
	page := d.show("/")
	for _, want := range []string{"Run halted is unreadable: ", "Run torn is unreadable: ", "Run done is unreadable: ",
		`aria-label="Mean reward of step`, `<a href="/runs/live">live</a></th><td><span class="state open">`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
	if n := strings.Count(page, `<span class="state unreadable">`); n != 3 {
		t.Errorf("%d rows are unreadable, want 3:\n%s", n, page)
	}
	if card, err := d.d.cardOf(t.Context(), t.Context(), "no name"); err != nil || card.Wrong == "" {
		t.Errorf("a run that the log cannot tell of: %+v, %v", card, err)
	}
	over, end := context.WithCancel(t.Context())
	end()
	if card, err := d.d.cardOf(over, over, "live"); err == nil {
		t.Errorf("nobody waits for the card any more: %+v", card)
	}
}

// TestSpark: a curve fills its height, whatever its figures are, and one of equal
// figures lies in the middle.
func TestSpark(t *testing.T) {
	for want, values := range map[string][]float64{
		"0.0,34.0 80.0,18.0 160.0,2.0":  {0, 1, 2},
		"0.0,18.0 160.0,18.0":           {7},
		"0.0,18.0 80.0,18.0 160.0,18.0": {0, 0, 0},
		"0.0,2.0 160.0,34.0":            {math.MaxFloat64, -math.MaxFloat64},
	} {
		if got := spark(values); got != want {
			t.Errorf("%v: %s, want %s", values, got, want)
		}
	}
}

// TestScoredOfLate: throughput is of the last minutes, so a run that stands still has none.
func TestScoredOfLate(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := newFlows()
	if got := f.scored(began); got != 0 {
		t.Errorf("nothing has happened: %g", got)
	}
	for s := range 600 {
		f.point(began.Add(time.Duration(s)*time.Second)).Scored++
	}
	if got := f.scored(began.Add(600 * time.Second)); math.Abs(got-60) > 1.5 {
		t.Errorf("one per second: %g per minute", got)
	}
	if got := f.scored(began.Add(601*time.Second + 2*recently)); got != 0 {
		t.Errorf("nothing was scored for minutes: %g", got)
	}
	if got := f.scored(began.Add(-time.Hour)); got != 0 {
		t.Errorf("a clock that goes back: %g", got)
	}
}
