package querysampler

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
)

// plant is a simulated fleet, feeder and trainer around the sampler; a tick is a second.
type plant struct {
	*decidertest.Log
	rng *rand.Rand
	scenario
	version int64

	running map[string]simulated
	waiting []simulated // complete, oldest first
	batches []int64     // composed and not trained on
	trainAt int         // when the batch under way will be done
	step    int64

	trained int64
	stale   int
	groups  int // complete
}

// scenario is how a run turns out.
type scenario struct {
	length func(*rand.Rand) int // tokens of a rollout
	// masked is the share of rollouts that the feeder does not train on; hidden ones
	// the sampler cannot know.
	masked, hidden float64
	max            int64
	// perBatch is how many groups make a batch on average.
	perBatch int
	// waste is what share of the groups may be stale beside that of who knows perBatch; 0 is 0.1.
	waste float64
	// patience is for how many seconds nothing may be trained; 0 is 200.
	patience int
}

type simulated struct {
	id       string
	ends     int // tick
	version  int64
	rollouts []events.RolloutFinished
	tokens   int64 // that the feeder trains on
}

const (
	simulatedBudget = 1000
	simulatedTicks  = 300
)

// simulate lets the time pass and fails the test when nothing is trained for long.
func simulate(t *testing.T, c scenario, byTokens bool) *plant {
	t.Helper()
	cfg := tokenConfig(func(cfg *runfile.RunConfig) {
		cfg.Staleness.Max, cfg.Filters.Truncated = c.max, true
		if !byTokens {
			cfg.Feeds[0] = runfile.Feed{Name: "trainer", GroupsPerBatch: c.perBatch}
		}
	})
	p := &plant{Log: decidertest.New(t, testRun, NewDecider(testRun, cfg)), rng: rand.New(rand.NewPCG(1, 2)),
		scenario: c, running: map[string]simulated{}}
	opened(p.Log)
	last, since := int64(0), 0
	for now := range simulatedTicks {
		p.Now = p.Now.Add(time.Second)
		p.open(now)
		p.complete(now)
		for p.compose(byTokens) {
		}
		p.train(now)
		if p.trained > last {
			last, since = p.trained, now
		}
		if now-since > cmp.Or(c.patience, 200) {
			t.Fatalf("starved: no step since second %d (%d steps, %d groups complete)", since, p.trained, p.groups)
		}
	}
	return p
}

func (p *plant) open(now int) {
	for _, f := range p.Settle() {
		if f.Type != events.GroupOpenedType {
			continue
		}
		g := simulated{id: f.Entity, version: p.version, ends: now + 5 + p.rng.IntN(30)}
		for range 2 {
			r := events.RolloutFinished{Tokens: p.length(p.rng), Sampled: 1, StopReason: events.StopFinished}
			if p.rng.Float64() < p.masked {
				r.StopReason = events.StopMaxTokens
			} else if p.rng.Float64() >= p.hidden {
				g.tokens += int64(r.Tokens)
			}
			g.rollouts = append(g.rollouts, r)
		}
		p.running[g.id] = g
	}
}

func (p *plant) complete(now int) {
	for _, id := range slices.Sorted(maps.Keys(p.running)) {
		g := p.running[id]
		if g.ends > now {
			continue
		}
		delete(p.running, id)
		p.groups++
		c := events.GroupCompleted{}
		for i, r := range g.rollouts {
			member := events.RolloutID(id, i)
			p.Happen(events.RolloutFinishedType, member, r)
			p.Happen(events.RolloutScoredType, member, events.RolloutScored{})
			c.Members = append(c.Members, events.Member{Rollout: member})
		}
		p.Happen(events.GroupCompletedType, id, c)
		p.waiting = append(p.waiting, g)
	}
}

// compose composes a batch when there is enough for one.
func (p *plant) compose(byTokens bool) bool {
	n, sum := 0, int64(0)
	for n < len(p.waiting) && (n == 0 || !byTokens || sum+p.waiting[n].tokens <= simulatedBudget) &&
		(byTokens || n < p.perBatch) {
		sum += p.waiting[n].tokens
		n++
	}
	enough := n == p.perBatch
	if byTokens {
		enough = sum >= simulatedBudget || n < len(p.waiting)
	}
	if !enough {
		return false
	}
	p.step++
	var groups []string
	for _, g := range p.waiting[:n] {
		groups = append(groups, g.id)
	}
	p.waiting = p.waiting[n:]
	ready(p.Log, "trainer", p.step, groups...)
	p.batches = append(p.batches, p.step)
	return true
}

// train takes four seconds for a batch; what is too old for the new version is dropped.
func (p *plant) train(now int) {
	if len(p.batches) == 0 {
		return
	}
	if p.trainAt == 0 {
		p.trainAt = now + 4
	}
	if now < p.trainAt {
		return
	}
	p.trainAt = 0
	p.version++
	p.trained++
	published(p.Log, testRun, p.version, p.batches[0])
	p.batches = p.batches[1:]
	p.waiting = slices.DeleteFunc(p.waiting, func(g simulated) bool {
		old := p.version-g.version > p.max
		if old {
			p.stale++
			p.Happen(events.GroupDroppedType, g.id, events.GroupDropped{Feed: "trainer", Reason: events.DropStale})
		}
		return old
	})
}

func (p *plant) wasted() float64 { return float64(p.stale) / float64(p.groups) }

func (p *plant) String() string {
	return fmt.Sprintf("%d steps from %d groups, %.0f %% of them stale", p.trained, p.groups, 100*p.wasted())
}

// TestTokenCapacityNeitherStarvesNorFloods compares batches cut by tokens, however wrong the guess,
// with a run that knew how many groups make a batch.
func TestTokenCapacityNeitherStarvesNorFloods(t *testing.T) {
	fixed := func(n int) func(*rand.Rand) int { return func(*rand.Rand) int { return n } }
	tails := func(r *rand.Rand) int { return 1 + int(50*math.Exp(r.NormFloat64())) } // mean 83
	for name, c := range map[string]scenario{
		"as guessed":          {length: fixed(125), max: 1, perBatch: 4},
		"on policy":           {length: fixed(125), max: 0, perBatch: 4},
		"three times shorter": {length: fixed(40), max: 1, perBatch: 12},
		"ten times longer":    {length: fixed(1250), max: 3, perBatch: 1},
		// Each group waits until the next one shows that it does not fit, which costs it a version.
		"just too long":       {length: fixed(300), max: 1, perBatch: 1, waste: 0.4},
		"long tails":          {length: tails, max: 1, perBatch: 6},
		"half of it masked":   {length: fixed(125), masked: 0.5, max: 1, perBatch: 8},
		"some empty rollouts": {length: func(r *rand.Rand) int { return r.IntN(2) * 200 }, max: 1, perBatch: 5},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := simulate(t, c, true), simulate(t, c, false)
			if got.trained < want.trained*8/10 || got.wasted() > want.wasted()+cmp.Or(c.waste, 0.1) {
				t.Errorf("%s; who knows the number of groups has %s", got, want)
			}
			t.Logf("%s; who knows the number of groups has %s", got, want)
		})
	}
}

// TestHiddenMasks: a feeder that trains on less than the sampler can know is fed all the same.
func TestHiddenMasks(t *testing.T) {
	p := simulate(t, scenario{length: func(*rand.Rand) int { return 125 }, hidden: 0.5, patience: 350}, true)
	t.Log(p)
}
