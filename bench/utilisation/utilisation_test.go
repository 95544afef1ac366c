package utilisation

import (
	"reflect"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// small is a simulation that a test has time for.
func small() Options {
	o := DefaultOptions()
	o.Workloads, o.Steps, o.Groups, o.GroupSize = []string{WorkloadAgents}, 3, 8, 8
	return o
}

// schedule simulates one schedule with the first workload.
func schedule(t *testing.T, o Options, name string) Schedule {
	t.Helper()
	s, err := simulate(o, o.Workloads[0], name)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", s)
	return s
}

// TestSameSeedSameFigures: and they say that a barrier leaves the server idle for most of the time.
func TestSameSeedSameFigures(t *testing.T) {
	run := func() Result {
		t.Helper()
		r, err := Run(small(), func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := run()
	if again := run(); !reflect.DeepEqual(first, again) {
		t.Errorf("the same seed gives %+v, then %+v", first, again)
	}
	if first.Barrier > first.Rondo/3 || first.Queue > first.Rondo/3 {
		t.Errorf("barrier %.3f, queue %.3f, rondo %.3f: expected long tails to cost the first two most of the time",
			first.Barrier, first.Queue, first.Rondo)
	}
	if names := len(first.Schedules); names != 4 || first.Schedules[3].Name != NewRunFile {
		t.Errorf("with the options of a new run file there are %d schedules: %+v", names, first.Schedules)
	}
	l := small().load(WorkloadAgents)
	other := l
	other.seed++
	if reflect.DeepEqual(l.group(1), other.group(1)) {
		t.Error("another seed gives the same group")
	}
}

// TestNewRunFileKeepsTheServerBusy: what a run file says that names neither staleness nor in_flight
// is as good as the plainest asynchronous schedule with a number that was chosen for this server,
// and most of what is sampled is trained on. What it said before is not.
func TestNewRunFileKeepsTheServerBusy(t *testing.T) {
	o := small()
	o.Staleness, o.InFlight = 1, 0
	before, now := schedule(t, o, Rondo), schedule(t, o, NewRunFile)
	plain := schedule(t, small(), Async)
	if now.Busy < 0.97*plain.Busy || now.Trained < 0.9*now.Busy || now.Trained < 2*before.Trained {
		t.Errorf("a new run file: busy %.3f, trained %.3f; async: busy %.3f; staleness 1: trained %.3f", now.Busy,
			now.Trained, plain.Busy, before.Trained)
	}
	if o := small().newRunFile(); o.InFlight != runfile.DefaultRunConfig().InFlight ||
		o.Staleness != runfile.DefaultRunConfig().Staleness.Max {
		t.Errorf("%+v is not what a new run file says", o)
	}
}

// TestEqualRolloutsNeedNoSchedule checks the simulation itself: without tails, prompts, tools and
// training no schedule can lose much.
func TestEqualRolloutsNeedNoSchedule(t *testing.T) {
	o := small()
	o.Workloads, o.Train, o.Groups = []string{WorkloadEqual}, 0, 16
	for _, name := range []string{Barrier, Queue, Async, NewRunFile} {
		if s := schedule(t, o, name); s.Busy < 0.97 || s.Busy > 1.0001 {
			t.Errorf("%s: busy %.3f, want all of them near 1", name, s.Busy)
		}
	}
}

// TestTooLittleCapacityShows: a sampler that opens one group at a time leaves the server idle,
// and the simulation says so.
func TestTooLittleCapacityShows(t *testing.T) {
	o := small()
	o.Groups, o.GroupSize, o.Staleness = 1, 4, 0
	if s := schedule(t, o, Rondo); s.Busy > 0.1 {
		t.Errorf("busy %.3f with one open group of %d rollouts for %d sequences", s.Busy, o.GroupSize, knee)
	}
}

// TestSampledInVainShows: where more rollouts are under way than the server can take, each takes
// longer, and more of them are too old at their end.
func TestSampledInVainShows(t *testing.T) {
	o := small()
	o.Steps, o.Groups, o.Staleness = 2, 16, 4
	bounded := schedule(t, o, Rondo)
	o.InFlight = 0
	if unbounded := schedule(t, o, Rondo); bounded.Trained < unbounded.Trained*1.1 {
		t.Errorf("%.3f of the ideal's tokens are trained on with in_flight auto, and %.3f without", bounded.Trained,
			unbounded.Trained)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"seed": func(o *Options) { o.Seed = -1 }, "steps": func(o *Options) { o.Steps = 0 },
		"groups":     func(o *Options) { o.Groups = 0 },
		"group size": func(o *Options) { o.GroupSize = 65 }, "staleness": func(o *Options) { o.Staleness = -1 },
		"in flight": func(o *Options) { o.InFlight = -1 }, "generators": func(o *Options) { o.Generators = 0 },
		"train":       func(o *Options) { o.Train = -1 },
		"workload":    func(o *Options) { o.Workloads = []string{WorkloadAgents, "sleep"} },
		"no workload": func(o *Options) { o.Workloads = nil },
	} {
		o := small()
		change(&o)
		if _, err := Run(o, func(string) {}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestCapacityIsFollowed: with "auto" and four generators the server is busy, nothing is chosen by
// hand, and what it can do is stated a few times only. A restart costs the time in which the server
// is away and cold, and no more.
func TestCapacityIsFollowed(t *testing.T) {
	o := small()
	o.Groups, o.GroupSize, o.Steps, o.Generators = 16, 4, 6, 4
	calm := schedule(t, o, Rondo)
	if calm.Capacity < knee-2 || calm.Capacity > knee+8 || calm.Capacities < 1 || calm.Capacities > 20 {
		t.Errorf("capacity %d, stated %d times", calm.Capacity, calm.Capacities)
	}
	o.Restart = true
	if s := schedule(t, o, Rondo); s.Busy > calm.Busy-restartSeconds/(6*s.StepSeconds)/4 || s.Busy < calm.Busy-0.2 {
		t.Errorf("with a restart it is busy for %.3f, without for %.3f", s.Busy, calm.Busy)
	}
}

// TestRunsShareSlots: one run has all slots beside 50 that are open and have hardly any calls;
// equal runs have equal parts; and one whose calls hang takes no more than its part.
func TestRunsShareSlots(t *testing.T) {
	all := shareAll(1)
	if alone := all[0]; alone.Idle != 50 || alone.Busy != 1 || alone.Least < 0.95 {
		t.Errorf("beside idle runs: %+v", alone)
	}
	for _, s := range all[1:] {
		if equal := 1.0 / float64(s.Busy+s.Hanging); s.Busy != 8 || s.Least < 0.9*equal ||
			s.Most > 1.1/float64(s.Busy) || s.Hung > 1.1*equal || (s.Hung > 0) != (s.Hanging > 0) {
			t.Errorf("equal runs: %+v", s)
		}
	}
}

// TestPrompts: the engine computes what it has not kept of a conversation before the first token,
// and forgets what was not used for long when its memory is full, and everything with new weights.
func TestPrompts(t *testing.T) {
	e := &engine{}
	var began, ended []float64
	turn := func(conversation string, prompt float64) *sequence {
		return &sequence{
			conversation: conversation, prompt: prompt, answer: 10 * sequenceTPS,
			first: func() { began = append(began, e.now) }, over: func() { ended = append(ended, e.now) },
		}
	}
	run := func() {
		for len(e.active.items)+len(e.prompts) > 0 {
			at, prompt := e.next()
			e.advance(at)
			e.happen(prompt)
		}
	}
	step := func(conversation string, prompt, wait float64) {
		t.Helper()
		before := e.now
		e.start(turn(conversation, prompt))
		run()
		if got := began[len(began)-1] - before; got < wait-1e-9 || got > wait+1e-9 {
			t.Errorf("%s, a prompt of %.0f tokens: the first token after %.4f s, want %.4f s", conversation, prompt,
				got, wait)
		}
	}
	step("a", prefillTPS, 1)
	step("a", prefillTPS+10*sequenceTPS+prefillTPS/2, 0.5)
	step("b", memory-prefillTPS, float64(memory-prefillTPS)/prefillTPS) // leaves no room for a
	step("a", prefillTPS, 1)
	e.load()
	step("a", prefillTPS, 1+loadSeconds)

	// Two at once: the second prompt waits for the first, whose decoding goes on beside it at a
	// part of its rate. A turn that does not fit into the memory waits for one to end.
	e, began, ended = &engine{}, nil, nil
	e.start(turn("a", prefillTPS))
	e.start(turn("b", prefillTPS))
	e.start(turn("c", memory-prefillTPS))
	if len(e.queued) != 1 {
		t.Fatalf("%d turns wait for memory", len(e.queued))
	}
	run()
	if want := []float64{1, 3}; !slices.Equal(began[:2], want) || ended[0] != 12 || began[2] < ended[1] {
		t.Errorf("first tokens at %v, ends at %v", began, ended)
	}
}

// TestLongRolloutsAreSummedUp: they have 100,000 to a million tokens, and no turn more of them in
// its prompt than the context holds.
func TestLongRolloutsAreSummedUp(t *testing.T) {
	l := small().load(WorkloadLong)
	var all []float64
	for n := range int64(100) {
		for _, s := range l.group(n) {
			sum := s.prompt
			for _, turn := range s.turns {
				sum += turn.tokens + turn.results
			}
			all = append(all, sum)
		}
	}
	if least, median, most := quantile(all, 0.05), quantile(all, 0.5), quantile(all, 0.99); least < 5e4 ||
		median < 1e5 || most < 5e5 || most > 2e6 {
		t.Errorf("rollouts of %.0f, %.0f and %.0f tokens", least, median, most)
	}
	w := newWorld(small(), WorkloadLong)
	w.sampled, w.resumed, w.ended = func(*rollout) {}, func(*rollout) {}, func(*rollout) {}
	r := &rollout{shape: shape{prompt: 1000, turns: []turn{{tokens: 100 * ki, results: 30 * ki}, {tokens: 1}}},
		context: 1000}
	w.answered(r)
	if r.context != 1000+summaryTokens || r.conversation() == (&rollout{}).conversation() {
		t.Errorf("it goes on with %.0f tokens in conversation %s", r.context, r.conversation())
	}
}
