package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/health"
)

// Bounds of what the first page shows above the list of runs.
const (
	maxLooked  = runsPage // runs that are not closed, whose states are asked for: the list below asks for them, too
	maxRunning = 6
	maxRemarks = 8
	sparkSteps = 60
	// cardTime is how long the page waits for the figures of the runs.
	cardTime = 30 * time.Millisecond
	// foldTime is how long a run goes on to be folded behind the page.
	foldTime = 10 * time.Second
	// recently is what throughput is counted over, and freshLetter how old a dead
	// letter may be that waits.
	recently, freshLetter = 5 * time.Minute, 24 * time.Hour
)

// home is what the first page shows above the list of runs: what is wrong now, what waits for
// somebody, and what runs.
type home struct {
	Wrong, Waits         []remark
	MoreWrong, MoreWaits int
	Running              []runCard
	MoreRunning          int
	NotLooked            int // runs that are not closed and older than those whose states were asked for
}

// remark is a sentence, with the page that says more.
type remark struct{ Text, Address, Link string }

// runCard is a run that goes on.
type runCard struct {
	Name, Policy        string
	Read                bool   // its figures are folded to its end
	Wrong               string // why they cannot be
	Long                bool   // it is not folded for a card
	Step, Staleness     int64
	Reward              *float64
	InFlight            int
	Scored              float64 // rollouts per minute
	Feed                bool    // it has steps
	Spark, Title, Along string  // the points of a curve, its title, and what it says
}

// homeOf gathers what the first page shows. names are the runs that are not
// closed, the newest first.
func (d *Dashboard) homeOf(r *http.Request, names []string, waits []remark) (*home, map[string]runRow, error) {
	h := &home{Waits: waits, NotLooked: max(0, len(names)-maxLooked)}
	for _, o := range d.planeOutages() {
		h.Wrong = append(h.Wrong, remark{Text: line(o.String())})
	}
	for _, away := range d.serversAway(nil) {
		h.Wrong = append(h.Wrong, remark{line(away), "/fleet", "Fleet"})
	}
	known := map[string]runRow{}
	var running []string
	names = names[:min(len(names), maxLooked)]
	states := make([]runRow, len(names))
	err := together(len(names), func(i int) (err error) {
		states[i].State, states[i].Why, err = d.log.RunState(r.Context(), names[i])
		return d.unreadable(r.Context(), names[i], &states[i], err)
	})
	if err != nil {
		return nil, nil, err
	}
	for i, name := range names {
		state, why := states[i].State, states[i].Why
		known[name] = states[i]
		here := "/runs/" + name
		switch state {
		case "open":
			running = append(running, name)
		case "paused":
			h.Waits = append(h.Waits, remark{line("Run " + name + " is paused" + because(why) + "."),
				here + "#act-h", "Resume or cancel it"})
		case eventlog.StateLost, eventlog.StateBehind, eventlog.StateRestoring, stateUnreadable:
			h.Wrong = append(h.Wrong, stateRemark(name, state, why))
		}
	}
	h.MoreRunning = max(0, len(running)-maxRunning)
	ctx, cancel := context.WithTimeout(r.Context(), d.cardTime)
	defer cancel()
	for _, name := range running[:min(len(running), maxRunning)] {
		card, err := d.cardOf(ctx, r.Context(), name)
		if err != nil {
			return nil, nil, err
		}
		h.Running = append(h.Running, card)
	}
	return h, known, nil
}

// planeOutages are those of the process's plane but for inference servers: the fleet tells
// of those, in any process.
func (d *Dashboard) planeOutages() []health.Outage {
	return slices.DeleteFunc(d.outages(), func(o health.Outage) bool { return o.Kind == health.ServerAway })
}

// stateUnreadable is the state of a run whose last facts cannot be read.
const stateUnreadable = "unreadable"

// unreadable notes why a run cannot be read, so that the page has all the others. It gives an error
// where the request is over.
func (d *Dashboard) unreadable(ctx context.Context, name string, row *runRow, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	d.logger.Error("run not read", "run", name, "error", err)
	row.State, row.Why = stateUnreadable, clip(err.Error(), 300)
	return nil
}

// maxQuestions is how many questions a page has on their way to the log at once.
const maxQuestions = 8

// together does something for each of n places, several at once.
func together(n int, do func(i int) error) error {
	var all errgroup.Group
	all.SetLimit(maxQuestions)
	for i := range n {
		all.Go(func() error { return do(i) })
	}
	return all.Wait()
}

func atMost(list []remark, most int) ([]remark, int) {
	return list[:min(len(list), most)], max(0, len(list)-most)
}

// stateRemark tells of a run in a state that is wrong.
func stateRemark(run, state, why string) remark {
	return remark{line("Run " + run + " is " + state + because(why) + "."), "/runs/" + run, "Its page"}
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + strings.TrimSuffix(why, ".")
}

// cardOf reads the figures of a run as far as they are folded when the first context ends. The fold
// goes on behind the page, so that the next one has more.
func (d *Dashboard) cardOf(soon, ctx context.Context, name string) (runCard, error) {
	card := runCard{Name: name}
	in, err := d.log.Incarnation(ctx, name)
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
		card.Wrong = "its stream is gone"
		return card, nil
	case err != nil && ctx.Err() == nil:
		card.Wrong = clip(err.Error(), 300)
		return card, nil
	case err != nil:
		return card, err
	case d.shelf.tooLong(name, in):
		card.Long = true
		return card, nil
	}
	b, release, err := d.shelf.hold(name, 0)
	if errors.Is(err, errBusy) {
		card.Wrong = "other pages are read"
		return card, nil
	}
	if err != nil {
		return card, err
	}
	if !b.has(in, in.LastSeq) {
		d.shelf.follow(b)
		b.await(soon, in.LastSeq)
	}
	if card.Read = b.has(in, in.LastSeq); card.Read || !d.goOn(b, in.LastSeq, release) {
		defer release()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wrong != nil {
		card.Wrong = clip(b.wrong.Error(), 300)
	}
	card.fill(b.state, time.Now())
	return card, nil
}

// goOn lets a run be folded to a sequence behind a page, and then releases it; false says
// that somebody else does.
func (d *Dashboard) goOn(b *book[runState], seq uint64, release func()) bool {
	d.warming.Lock()
	defer d.warming.Unlock()
	if d.warm[b.run] || len(d.warm) >= maxRunning {
		return false
	}
	d.warm[b.run] = true
	go func() {
		ctx, cancel := context.WithTimeout(d.ctx, foldTime)
		defer cancel()
		b.await(ctx, seq)
		release()
		d.warming.Lock()
		defer d.warming.Unlock()
		delete(d.warm, b.run)
	}()
	return true
}

// fill reads the figures of a run, whose book is locked.
func (c *runCard) fill(s *runState, now time.Time) {
	feed := s.books.FirstFeed()
	c.Policy, c.InFlight, c.Scored, c.Feed = s.books.Config.Policy, s.stands.inFlight(), s.flows.scored(now),
		len(s.books.Config.Feeds) > 0
	var values []float64
	if batches := s.books.Batches(feed); len(batches) > 0 {
		last := batches[len(batches)-1]
		c.Step, c.Reward, c.Staleness = last.Step, &last.RewardMean, last.Staleness
		batches = batches[max(0, len(batches)-sparkSteps):]
		for _, batch := range batches {
			values = append(values, batch.RewardMean)
		}
		c.Title = fmt.Sprintf("Mean reward of steps %d to %d", batches[0].Step, last.Step)
	} else if !c.Feed {
		for _, p := range s.flows.points[max(0, len(s.flows.points)-sparkSteps):] {
			values = append(values, float64(p.Scored)/s.flows.width.Minutes())
		}
		c.Title = "Rollouts scored per minute"
	}
	if len(values) == 0 {
		return
	}
	c.Spark = spark(values)
	c.Along = fmt.Sprintf("%s: from %s to %s, now %s", c.Title, number(slices.Min(values)), number(slices.Max(values)),
		number(values[len(values)-1]))
}

// The size of a curve on the first page.
const sparkWidth, sparkHeight = 160, 36

// spark are the points of a curve that fills its height, or lies in its middle where all
// its figures are the same.
func spark(values []float64) string {
	low, high := slices.Min(values), slices.Max(values)
	if len(values) == 1 {
		values = []float64{values[0], values[0]}
	}
	var b strings.Builder
	for i, v := range values {
		share := 0.5
		if wide := high/2 - low/2; wide > 0 { // halves, as figures may be any
			share = (v/2 - low/2) / wide
		}
		fmt.Fprintf(&b, "%.1f,%.1f ", float64(i)/float64(len(values)-1)*sparkWidth, 2+(1-share)*(sparkHeight-4))
	}
	return strings.TrimSpace(b.String())
}

// inFlight is how many rollouts have no outcome yet.
func (s *standing) inFlight() int {
	if len(s.feeds) == 0 {
		return 0
	}
	return s.feeds[0].InFlight
}

// scored is how many rollouts were scored per minute of late, 0 where nothing
// has happened for as long.
func (f *flows) scored(now time.Time) float64 {
	if f.began.IsZero() || !now.After(f.began) {
		return 0
	}
	from, n := now.Add(-max(recently, 2*f.width)), 0
	first := f.began
	for i, p := range f.points {
		begins := f.began.Add(time.Duration(i) * f.width)
		if begins.Before(from) {
			first = begins.Add(f.width)
			continue
		}
		n += p.Scored
	}
	return float64(n) / max(now.Sub(first), time.Minute).Minutes() // a run that began just now has no rate yet
}

// waitingLetters says how many dead letters of late can be submitted again.
func (c *catalogue) waitingLetters(now time.Time) []remark {
	n := 0
	for _, l := range c.letters {
		if l.Redrivable() && now.Sub(l.At) < freshLetter {
			n++
		}
	}
	switch n {
	case 0:
		return nil
	case 1:
		return []remark{{"The intake has refused a submission within a day.", "/plane", "Why, and submit it again"}}
	}
	return []remark{{fmt.Sprintf("The intake has refused %d submissions within a day.", n), "/plane",
		"Why, and submit them again"}}
}

// rejections tells of policies whose last weights were not published, and which a run
// that is not closed uses.
func (c *catalogue) rejections() (list []remark) {
	used := map[string]bool{}
	for _, r := range c.runs {
		used[r.Policy] = used[r.Policy] || !r.Closed
	}
	for _, name := range c.names {
		if why := c.policies[name].Rejected; why != "" && used[name] {
			list = append(list, remark{line("The last weights of policy " + name + " were rejected" + because(why) +
				"."), "/plane", "Plane"})
		}
	}
	return list
}

// unclosed are the runs that are not closed, the newest first.
func (c *catalogue) unclosed() (names []string) {
	for _, name := range slices.Backward(c.order) {
		if !c.runs[name].Closed {
			names = append(names, name)
		}
	}
	return names
}

// close notes that a run was closed.
func (c *catalogue) close(e events.Event) {
	if r := c.runs[e.Entity]; r != nil {
		r.Closed = true
	}
}
