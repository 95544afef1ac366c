package querysampler

import (
	"math"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage/projection"
)

// openGroups opens groups as far as the capacity goes: queries first, then forks, each in the order
// of their coming, then tasks.
func (d *Decider) openGroups(v projection.View, p *plan, s state, now time.Time) {
	if !d.room(p, s, now) {
		return
	}
	for name, err := range projection.Scan[string](v, queries) {
		if err != nil || !d.room(p, s, now) {
			p.fail(err)
			return
		}
		d.open(p, &s, events.GroupOpened{Task: name, Size: d.cfg.GroupSize}, now)
	}
	for f, err := range projection.Scan[fork](v, forks) {
		if err != nil || !d.room(p, s, now) {
			p.fail(err)
			return
		}
		d.open(p, &s, events.GroupOpened{Task: f.Task, Size: f.Count, Origin: &f.Origin}, now)
	}
	if d.cfg.External {
		return
	}
	draw, err := d.drawer(v)
	p.fail(err)
	for p.err == nil && d.room(p, s, now) && d.needsGroup(p, s, now) {
		s.Drawn++
		d.open(p, &s, events.GroupOpened{Task: draw(s.DrawnBefore + s.Drawn), Size: d.cfg.GroupSize}, now)
	}
}

// open opens the run's next group, counts it, and starts its members.
func (d *Decider) open(p *plan, s *state, opened events.GroupOpened, now time.Time) {
	s.Groups++
	s.Uncovered++
	s.Useful++
	s.Running++
	opened.PolicyVersion = s.PolicyVersion
	if d.cfg.PolicyVersion != nil {
		opened.PolicyVersion = *d.cfg.PolicyVersion
	}
	g := newGroup(events.GroupID(s.Groups), opened)
	p.add(events.New(d.run, events.GroupOpenedType, g.ID, "0", opened))
	d.start(p, g, s.GroupsBefore+s.Groups, now.Add(time.Duration(d.cfg.Limits.Timeout)))
}

// room reports whether another group would be young enough when it is trained on: what is opened
// and not covered by weights must fit into staleness.max + 1 batches.
func (d *Decider) room(p *plan, s state, now time.Time) bool {
	if d.cfg.Epochs > 0 {
		return d.roomToTry(p, s)
	}
	if !d.roomUnderWay(p, s) {
		return false
	}
	batches := d.cfg.StalenessOf(d.feed).Max + 1
	if d.feed.TokensPerBatch == 0 {
		return s.Uncovered < batches*int64(d.feed.GroupsPerBatch)
	}
	return s.unbatched()+d.expected(s) < d.tokensFor(s, batches-s.Batches) || stuck(p, s, now)
}

// roomUnderWay reports whether the rollouts of another group may be under way at once. One group's
// always may, whatever its size. Members that have ended count no longer, so that a group which
// waits for its longest rollout keeps nobody from starting.
func (d *Decider) roomUnderWay(p *plan, s state) bool {
	if d.cfg.InFlight == runfile.AutoInFlight {
		return d.roomToAsk(p, s)
	}
	return d.cfg.InFlight == 0 || p.underWay == 0 || p.underWay+d.cfg.GroupSize <= int(d.cfg.InFlight)
}

// feedersPatience is what a feeder gets to compose a batch.
const feedersPatience = 30 * time.Second

// stuck: nothing is in flight, the trainer has nothing to train on, and the feeder composes
// nothing, though enough is there by our count. It may see less to train on: then another
// group is due, one at a time.
func stuck(p *plan, s state, now time.Time) bool {
	if s.Running > 0 || s.Batches > 0 {
		return false
	}
	at := s.Completed.Add(feedersPatience)
	if now.Before(at) {
		p.wakeAt(at)
		return false
	}
	return true
}

// needsGroup reports whether the run still needs another group for its steps.
func (d *Decider) needsGroup(p *plan, s state, now time.Time) bool {
	if d.cfg.Epochs > 0 {
		return s.Drawn < d.groupsToTry()
	}
	if d.cfg.Steps == 0 {
		return true
	}
	if d.feed.TokensPerBatch == 0 {
		return s.Useful < d.cfg.Steps*int64(d.feed.GroupsPerBatch)
	}
	left := d.cfg.Steps - s.Ready
	return s.unbatched()+d.expected(s) < d.tokensFor(s, left) || left > 0 && stuck(p, s, now)
}

// tokensFor is how many tokens make n more batches. Groups stay whole, so a batch holds
// what fits; the last one is composed when a group comes that does not fit, so enough for
// a full one must be there.
func (d *Decider) tokensFor(s state, n int64) float64 {
	if n <= 0 {
		return 0
	}
	budget, mean := float64(d.feed.TokensPerBatch), max(1, d.meanTokens(s))
	fits := float64(math.Floor(budget/mean) * mean)
	return float64(float64(n-1)*fits) + budget
}

// unbatched is how many tokens of complete groups wait for a batch.
func (s *state) unbatched() float64 { return float64(s.UncoveredTokens - s.BatchedTokens) }

// expected is how many tokens the groups in flight will have.
func (d *Decider) expected(s state) float64 { return float64(float64(s.Running) * d.meanTokens(s)) }

// meanTokens is the moving average of the groups' tokens. The run file's guess is as
// good as one measurement.
func (d *Decider) meanTokens(s state) float64 {
	if s.Measured == 0 {
		return float64(d.feed.TokensPerBatch) / float64(d.feed.GroupsPerBatch)
	}
	return s.MeanTokens
}

// recentGroups is how many groups the moving average looks back: rollouts grow
// longer as a policy learns.
const recentGroups = 64

// measure takes a completed group's tokens into the average.
func (d *Decider) measure(s *state, tokens int64) {
	mean := d.meanTokens(*s)
	s.Measured++
	s.MeanTokens = mean + (float64(tokens)-mean)/float64(min(s.Measured+1, recentGroups))
}
