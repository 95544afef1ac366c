package utilisation

import (
	"reflect"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// small is a simulation that a test has time for.
func small() Options {
	o := DefaultOptions()
	o.Steps, o.GroupSize, o.Staleness = 2, 4, 3
	return o
}

func simulate(t *testing.T, o Options) Result {
	t.Helper()
	r, err := Run(o, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Schedules {
		t.Logf("%+v", s)
	}
	return r
}

// TestSameSeedSameFigures: and they say that a barrier leaves the server idle for most of the time.
func TestSameSeedSameFigures(t *testing.T) {
	first := simulate(t, small())
	if again := simulate(t, small()); !reflect.DeepEqual(first, again) {
		t.Errorf("the same seed gives %+v, then %+v", first, again)
	}
	if first.Async < 0.95 {
		t.Errorf("async %.3f: the plainest asynchronous schedule keeps the server busy, too", first.Async)
	}
	if first.Barrier > first.Rondo/2 || first.Queue > first.Rondo/1.5 || first.Rondo < 0.95 {
		t.Errorf("barrier %.3f, queue %.3f, rondo %.3f: expected long tails to cost the first two most of the time, and Rondo hardly any", first.Barrier, first.Queue, first.Rondo)
	}
	if reflect.DeepEqual(load{seed: 1, size: 4}.group(1), load{seed: 2, size: 4}.group(1)) {
		t.Error("another seed gives the same group")
	}
}

// TestEqualRolloutsNeedNoSchedule checks the simulation itself: without tails, tools and training no schedule can lose much.
func TestEqualRolloutsNeedNoSchedule(t *testing.T) {
	o := small()
	o.Equal, o.Train = true, 0
	r := simulate(t, o)
	for _, busy := range []float64{r.Barrier, r.Queue, r.Async, r.Rondo} {
		if busy < 0.97 || busy > 1.0001 {
			t.Errorf("barrier %.3f, queue %.3f, async %.3f, rondo %.3f: want all of them near 1", r.Barrier, r.Queue, r.Async, r.Rondo)
		}
	}
}

// TestTooLittleCapacityShows: a sampler that opens one group at a time leaves the server idle, and the simulation says so.
func TestTooLittleCapacityShows(t *testing.T) {
	o := small()
	o.Groups, o.Staleness = 1, 0
	if r := simulate(t, o); r.Rondo > 0.1 {
		t.Errorf("rondo %.3f with one open group of %d rollouts for %d sequences", r.Rondo, o.GroupSize, knee)
	}
}

// TestSampledInVainShows: where more rollouts are under way than the server can take, each takes longer, and more of them are too old at their end.
func TestSampledInVainShows(t *testing.T) {
	trained := func(inFlight runfile.InFlight) float64 {
		o := DefaultOptions()
		o.Steps, o.Staleness, o.InFlight = 4, 4, inFlight
		p, err := simulateRondo(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", p.measured("rondo"))
		return p.measured("rondo").Trained
	}
	if bounded, unbounded := trained(96), trained(0); bounded < unbounded*1.1 {
		t.Errorf("%.3f of the ideal's tokens are trained on with in_flight 96, and %.3f without", bounded, unbounded)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"seed": func(o *Options) { o.Seed = -1 }, "steps": func(o *Options) { o.Steps = 0 }, "groups": func(o *Options) { o.Groups = 0 },
		"group size": func(o *Options) { o.GroupSize = 65 }, "staleness": func(o *Options) { o.Staleness = -1 }, "policy": func(o *Options) { o.Policy = "hope" },
		"in flight": func(o *Options) { o.InFlight = -1 }, "generators": func(o *Options) { o.Generators = 0 }, "train": func(o *Options) { o.Train = -1 },
	} {
		o := small()
		change(&o)
		if _, err := Run(o, func(string) {}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestCapacityIsFollowed: with "auto" and four generators the server is busy, nothing is chosen by hand, and what it can do is stated a few times only. A restart costs the time in which
// the server is away and cold, and no more.
func TestCapacityIsFollowed(t *testing.T) {
	run := func(restart bool) Schedule {
		o := DefaultOptions()
		o.Steps, o.GroupSize, o.Staleness, o.InFlight, o.Generators, o.Restart = 6, 4, 3, runfile.AutoInFlight, 4, restart
		p, err := simulateRondo(o)
		if err != nil {
			t.Fatal(err)
		}
		s := p.measured("rondo")
		s.Capacity, s.Capacities = p.capacity.Turns, p.capacities
		t.Logf("%+v", s)
		return s
	}
	calm := run(false)
	if calm.Busy < 0.97 || calm.Capacity < knee-2 || calm.Capacity > knee+8 || calm.Capacities < 1 || calm.Capacities > 20 {
		t.Errorf("busy %.3f, capacity %d, stated %d times", calm.Busy, calm.Capacity, calm.Capacities)
	}
	if s := run(true); s.Busy > calm.Busy-restartSeconds/(6*s.StepSeconds)/2 || s.Busy < calm.Busy-0.2 {
		t.Errorf("with a restart it is busy for %.3f, without for %.3f", s.Busy, calm.Busy)
	}
}

// TestOrderOfTools: where tool runners are short of slots, groups end sooner if those with the fewest rollouts left come first, and no more is sampled. Where
// there are enough slots, the order changes nothing.
func TestOrderOfTools(t *testing.T) {
	rondo := func(slots int, order string) Schedule {
		o := small()
		o.Steps, o.ToolSlots, o.ToolOrder = 4, slots, order
		return simulate(t, o).Schedules[3]
	}
	scarce, ordered := rondo(6, OrderTurns), rondo(6, OrderGroups)
	if scarce.ToolWaitP50 <= 0 || ordered.GroupMean > 0.95*scarce.GroupMean || ordered.Busy > 1.05*scarce.Busy || ordered.Busy < 0.95*scarce.Busy {
		t.Errorf("turns as they come: %+v\nby groups: %+v", scarce, ordered)
	}
	if enough, ordered := rondo(0, OrderTurns), rondo(0, OrderGroups); !reflect.DeepEqual(enough, ordered) {
		t.Errorf("with enough slots: %+v, by groups %+v", enough, ordered)
	}
}
