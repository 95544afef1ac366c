package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// follower is an open page.
type follower struct {
	cancel context.CancelFunc
	lines  chan string // closed at the end
}

// follow opens a page's line to a server.
func follow(t *testing.T, base, run string) *follower {
	t.Helper()
	return followAt(t, base+"/runs/"+run+"/live")
}

func followAt(t *testing.T, address string) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("answered %d, %s", answer.StatusCode, answer.Header)
	}
	f := &follower{cancel, make(chan string, 1000)}
	go func() {
		defer close(f.lines)
		defer answer.Body.Close()
		for s := bufio.NewScanner(answer.Body); s.Scan(); {
			f.lines <- s.Text()
		}
	}()
	t.Cleanup(cancel)
	return f
}

// hears waits until the page was told of a sequence.
func (f *follower) hears(t *testing.T, seq uint64) {
	t.Helper()
	for line := range f.lines {
		if line == fmt.Sprintf("data: %d", seq) {
			return
		}
	}
	t.Fatalf("the line ended before event %d", seq)
}

// working counts the goroutines that run this package's code, beside that of the test.
func working() (n int) {
	stacks := make([]byte, 4<<20)
	for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "services/dashboard.(*book") ||
			strings.Contains(stack, "services/dashboard.(*Dashboard).live") {
			n++
		}
	}
	return n
}

// TestPagesShareAFollower: any number of open pages of a run follow it once, hear what happens, and
// free everything when they are closed. The one who comes next goes on where they stopped.
func TestPagesShareAFollower(t *testing.T) {
	d := newDesk(t)
	d.openRun()
	server := httptest.NewServer(d.d)
	t.Cleanup(server.Close)
	var pages []*follower
	for range 5 {
		pages = append(pages, follow(t, server.URL, "live"))
	}
	started := servicetest.StartRollout(t, d.log, "live", "g000001-0", "fix")
	for _, p := range pages {
		p.hears(t, started.Seq)
	}
	d.d.shelf.mu.Lock()
	b := d.d.shelf.books[place{"live", 0}]
	if len(d.d.shelf.books) != 1 || b.holders != 5 {
		t.Errorf("%d books, held by %d", len(d.d.shelf.books), b.holders)
	}
	d.d.shelf.mu.Unlock()
	if n := strings.Count(stacksOf(t), "(*book[...]).follow("); n != 1 {
		t.Errorf("%d goroutines follow the run", n)
	}
	for _, p := range pages {
		p.cancel()
	}
	natstest.Eventually(t, "closed pages leave nothing behind", func() bool { return working() == 0 })
	d.state(events.RunPausedType, "live", "p", events.RunPaused{})
	d.has("/runs/live", "paused", "g000001-0")
	natstest.Eventually(t, "nor does a page that was asked for", func() bool { return working() == 0 })
	if len(b.waiting) != 0 {
		t.Errorf("%d still wait", len(b.waiting))
	}
}

func stacksOf(t *testing.T) string {
	t.Helper()
	stacks := make([]byte, 4<<20)
	return string(stacks[:runtime.Stack(stacks, true)])
}

// TestLinesEndWithTheService: a service that ends keeps no page waiting.
func TestLinesEndWithTheService(t *testing.T) {
	log := natstest.Log(t)
	servicetest.OpenRun(t, log, "live", servicetest.Config("fix"))
	ctx, stop := context.WithCancel(t.Context())
	d, err := New(ctx, servicetest.Env(t, log), Access{Token: secret, Open: true}, tokenText)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	f := follow(t, server.URL, "live")
	f.hears(t, 1)
	stop()
	for range f.lines {
	}
}

// TestPagesFillThemselves: a page whose run is not folded yet answers at once, says so, and has a
// line that tells it when there is more. That of the past ends when all of it is there.
func TestPagesFillThemselves(t *testing.T) {
	d := newDesk(t)
	b := newBulk(t, d.log, "large")
	b.groups(0, 8)
	d.d.patience = 0
	server := httptest.NewServer(d.d)
	t.Cleanup(server.Close)
	for _, at := range []string{"", "?at=200"} {
		d.has("/runs/large"+at, "the rest follows", `data-live="/runs/large/live`+at+`"`)
	}
	f := followAt(t, server.URL+"/runs/large/live?at=200")
	last := ""
	for line := range f.lines {
		if line == "event: over" {
			break
		}
		if line != "" {
			last = line
		}
	}
	if last != "data: 200" {
		t.Errorf("the line ended behind %q", last)
	}
	if page := d.show("/runs/large?at=200"); strings.Contains(page, "the rest follows") ||
		strings.Contains(page, "data-live") {
		t.Error("a page that has everything waits for more")
	}
}

// TestReplacedRun: a run that is deleted and made again is folded anew.
func TestReplacedRun(t *testing.T) {
	d := newDesk(t)
	d.openRun()
	servicetest.StartRollout(t, d.log, "live", "g000001-0", "fix")
	d.has("/runs/live", "g000001-0")
	if err := d.log.Streams.DeleteRun(t.Context(), "live"); err != nil {
		t.Fatal(err)
	}
	if err := d.log.Streams.EnsureRun(t.Context(), "live"); err != nil {
		t.Fatal(err)
	}
	d.state(events.RunOpenedType, "live", "0", events.RunOpened{Config: servicetest.Config("fix")})
	servicetest.StartRollout(t, d.log, "live", "g000007-0", "fix")
	natstest.Eventually(t, "the new run is shown", func() bool {
		page := d.show("/runs/live")
		return strings.Contains(page, "g000007-0") && !strings.Contains(page, "g000001-0")
	})
}

// TestBooksArePutAway: books that nobody holds are kept within bounds, the
// ones that were used last.
func TestBooksArePutAway(t *testing.T) {
	d := newDesk(t)
	d.openRun()
	for range 3 * maxBooks {
		servicetest.StartRollout(t, d.log, "live", events.RolloutID(events.GroupID(1), d.count()), "fix")
	}
	for at := range 2 * maxBooks {
		d.show(fmt.Sprintf("/runs/live?at=%d", at+1))
	}
	d.d.shelf.mu.Lock()
	defer d.d.shelf.mu.Unlock()
	if n := len(d.d.shelf.books); n > maxBooks+1 {
		t.Errorf("%d books are kept", n)
	}
	b := d.d.shelf.books[place{"live", 2 * maxBooks}]
	if b == nil {
		t.Fatal("the last one is not")
	}
	if b.size() < 2*maxBooks-1 {
		t.Errorf("a book of %d events has a size of %d", 2*maxBooks, b.size())
	}
	recorded := evaluation.NewRecorded("live")
	if err := recorded.Take(servicetest.Event(t, "live", events.RolloutStartedType, "g000001-0",
		"0", events.RolloutStarted{Group: "g000001"})); err != nil {
		t.Fatal(err)
	}
	if n := (&book[evaluation.Recorded]{state: recorded}).size(); n != 2 {
		t.Errorf("an evaluation of a rollout and its group has a size of %d", n)
	}
}

// count is how many events the run has.
func (d *desk) count() int {
	in, err := d.log.Incarnation(d.Context(), "live")
	if err != nil {
		d.Fatal(err)
	}
	return int(in.LastSeq)
}

// TestFlowsAreBounded: however long a run is, its curves have a bounded number of points, and lose
// nothing that they count.
func TestFlowsAreBounded(t *testing.T) {
	f := newFlows()
	began := servicetest.Event(t, "live", events.RolloutStartedType, "g000001-0", "0", events.RolloutStarted{}).Time
	for i := range 10_000 {
		f.count(began.Add(time.Duration(i)*7*time.Second), books.Totals{Scored: 1})
	}
	scored := 0
	for _, p := range f.points {
		scored += p.Scored
	}
	if len(f.points) > maxPoints || len(f.points) < maxPoints/2 || scored != 10_000 {
		t.Errorf("%d points, %d scored", len(f.points), scored)
	}
}

// TestPartsOfRewards: each part of the reward has a chart of its own, with a point where something
// was scored, and a run without parts says why there is none.
func TestPartsOfRewards(t *testing.T) {
	f := newFlows()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	why := func(scored bool) string { return f.rewards(scored)[noParts].Why }
	if !strings.Contains(why(false), "No rollout is scored") || !strings.Contains(why(true), "one number") {
		t.Errorf("without a part: %q, %q", why(false), why(true))
	}
	for i := range 10_000 {
		components := map[string]float64{"tests": float64(i % 2)}
		if i%2 == 1 {
			components["brevity"] = 0.25
		}
		f.score(began.Add(time.Duration(i)*7*time.Second), components)
	}
	charts := f.rewards(true)
	for i, want := range map[int]float64{0: 0.5, 1: 0.25} { // tests was scored first
		c := charts[partChart(i)]
		if len(c.X) < maxPoints/2 || len(c.X) > maxPoints || len(c.Series) != 1 ||
			len(c.Series[0].Values) != len(c.X) || !c.Time {
			t.Fatalf("%d points of %+v", len(c.X), c)
		}
		for _, v := range c.Series[0].Values {
			if math.Abs(*v-want) > 0.02 {
				t.Fatalf("%s: a mean of %g, want %g", c.Series[0].Name, *v, want)
			}
		}
	}
	n := 0
	for _, p := range f.points {
		n += p.Parts[1].N
	}
	if n != 5000 || !strings.Contains(why(true), "load the page again") {
		t.Errorf("%d values of brevity are counted; %q", n, why(true))
	}

	f = newFlows()
	for i := range maxParts {
		f.score(began, map[string]float64{fmt.Sprint("p", i): 1})
	}
	if f.more {
		t.Error("there are parts that are not drawn, before there are")
	}
	drawn := f.rewards(true)[partChart(0)].Series[0].Values[0]
	f.score(began, map[string]float64{"z": 1, "p0": 5})
	if *drawn != 1 {
		t.Errorf("a chart changes to %g while it is written", *drawn)
	}
	if !f.more || len(f.parts) != maxParts || f.points[0].Parts[0].N != 2 {
		t.Errorf("more parts than are drawn: %v, %d, %+v", f.more, len(f.parts), f.points[0].Parts[0])
	}
	f = newFlows()
	for _, v := range []float64{math.MaxFloat64, math.MaxFloat64} {
		f.score(began, map[string]float64{"vast": v})
		f.score(began.Add(time.Minute), map[string]float64{"vast": v, "zero": 0})
	}
	if text, err := json.Marshal(f.rewards(true)); err != nil {
		t.Errorf("values without a mean: %v", err)
	} else if zero := f.rewards(true)[partChart(1)]; len(zero.X) != 1 || *zero.Series[0].Values[0] != 0 {
		t.Errorf("a part that is 0: %s", text)
	}
}

// TestPartsOfRewardsOnThePage: the page has a place for each chart that there is.
func TestPartsOfRewardsOnThePage(t *testing.T) {
	d := newDesk(t)
	servicetest.OpenRun(t, d.log, "live", servicetest.Config("fix"))
	d.state(events.GroupOpenedType, "g000001", "0", events.GroupOpened{Task: "fix", Size: 2, PolicyVersion: 3})
	for _, rollout := range []string{"g000001-0", "g000001-1"} {
		servicetest.StartRollout(d, d.log, "live", rollout, "fix")
	}
	d.has("/runs/live", `data-chart="part"`)
	score := func(rollout string, components map[string]float64) {
		d.state(events.RolloutScoredType, rollout, "0", events.RolloutScored{Reward: 1, Components: components})
	}
	score("g000001-0", map[string]float64{"tests": 1, "<i>brevity": 0.5})
	d.has("/runs/live", "Part of the reward: tests,", "Part of the reward: &lt;i&gt;brevity,",
		`data-chart="part0"`, `data-chart="part1"`)
	if page := d.show("/runs/live"); strings.Contains(page, `data-chart="part"`) ||
		strings.Contains(page, "parts of the reward are drawn") {
		t.Error("a run with two parts has a chart for none, or more than there are")
	}
	var charts map[string]chart
	if err := json.Unmarshal([]byte(d.show("/runs/live/curves")), &charts); err != nil {
		t.Fatal(err)
	}
	if c := charts["part1"]; len(c.X) != 1 || c.Series[0].Name != "tests" || *c.Series[0].Values[0] != 1 {
		t.Errorf("the chart of tests is %+v", c)
	}
	many := map[string]float64{}
	for i := range maxParts {
		many[fmt.Sprint("p", i)] = 0
	}
	score("g000001-1", many)
	d.has("/runs/live", fmt.Sprintf("The first %d parts of the reward are drawn.", maxParts))
}
