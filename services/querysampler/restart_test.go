package querysampler

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/storage/projection"
)

// replayed is the log as a sampler sees it that has lost its local state.
func replayed(t *testing.T, l *decidertest.Log, cfg runfile.RunConfig) *decidertest.Log {
	t.Helper()
	again := decidertest.New(t, testRun, NewDecider(testRun, cfg))
	again.Now = l.Now
	for _, e := range l.Events {
		again.Put(e)
	}
	return again
}

// schedule plays a run of outsiders, queries, failures, drops, batches and
// weights in a random order.
type schedule struct {
	*decidertest.Log
	rng      *rand.Rand
	cfg      runfile.RunConfig
	flying   []string
	members  map[string][]events.Member
	size     map[string]int
	complete []string
	step     int64
	outside  int
}

func (s *schedule) note(facts []events.Event) {
	for _, f := range facts {
		switch f.Type {
		case events.GroupOpenedType:
			s.size[f.Entity] = s.cfg.GroupSize
		case events.RolloutStartedType:
			s.flying = append(s.flying, f.Entity)
		case events.RolloutFailedType:
			s.over(f.Entity, events.Member{Rollout: f.Entity, Failed: true})
		}
	}
}

// over ends a rollout, and its group with the last one.
func (s *schedule) over(id string, m events.Member) {
	for i, other := range s.flying {
		if other == id {
			s.flying = append(s.flying[:i:i], s.flying[i+1:]...)
			break
		}
	}
	g := events.GroupOf(id)
	if s.members[g] = append(s.members[g], m); len(s.members[g]) < s.size[g] {
		return
	}
	s.Happen(events.GroupCompletedType, g, events.GroupCompleted{Task: "task-1", Members: s.members[g]})
	for _, m := range s.members[g] {
		if !m.Failed {
			s.complete = append(s.complete, g)
			return
		}
	}
}

// happen lets one thing happen.
func (s *schedule) happen() {
	s.Now = s.Now.Add(time.Duration(s.rng.IntN(40)) * time.Second)
	id := ""
	if len(s.flying) > 0 {
		id = s.flying[s.rng.IntN(len(s.flying))]
	}
	switch what := s.rng.IntN(12); {
	case what < 5 && id != "":
		s.Happen(events.RolloutFinishedType, id, events.RolloutFinished{Tokens: 1 + s.rng.IntN(300), Sampled: 1,
			StopReason: events.StopFinished})
		m := events.Member{Rollout: id, Reward: float64(s.rng.IntN(2))}
		s.Happen(events.RolloutScoredType, id, events.RolloutScored{Reward: m.Reward})
		s.over(id, m)
	case what == 5 && id != "":
		s.Happen(events.RolloutFailedType, id, events.RolloutFailed{Class: events.ClassEndpoint, Message: "refused"})
		s.over(id, events.Member{Rollout: id, Failed: true})
	case what == 6:
		s.outside++
		g := fmt.Sprint("x", s.outside)
		openedOutside(s.Log, g, 2)
		s.size[g] = 2
		for i := range 1 + s.rng.IntN(2) {
			startedOutside(s.Log, g, i, s.Now.Add(time.Minute))
			s.flying = append(s.flying, events.RolloutID(g, i))
		}
	case what == 7:
		submitted(s.Log, fmt.Sprint("q", len(s.Events)))
	case what == 8 && len(s.complete) > 0:
		s.Happen(events.GroupDroppedType, s.complete[0],
			events.GroupDropped{Feed: "trainer", Reason: events.DropFiltered})
		s.complete = s.complete[1:]
	case what == 9 && s.step > 0:
		published(s.Log, testRun, s.step, 1+s.rng.Int64N(s.step))
	case len(s.complete) >= 2:
		s.step++
		ready(s.Log, "trainer", s.step, s.complete[:2]...)
		s.complete = s.complete[2:]
	}
	if s.rng.IntN(25) == 0 {
		s.Happen(events.RunResumedType, testRun, events.RunResumed{})
	}
}

// TestDecisionsAfterARestart: a sampler whose state was deleted, at whatever moment, decides
// what the other one decides.
func TestDecisionsAfterARestart(t *testing.T) {
	groups := 0
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 0))
		change := func(c *runfile.RunConfig) {
			c.Curriculum = &runfile.Curriculum{}
			c.Limits.Timeout = runfile.Duration(5 * time.Minute)
		}
		cfg := config(change)
		if seed%2 == 1 {
			cfg = tokenConfig(change)
		}
		s := &schedule{Log: decidertest.New(t, testRun, NewDecider(testRun, cfg)), rng: rng, cfg: cfg,
			members: map[string][]events.Member{}, size: map[string]int{}}
		opened(s.Log)
		for moment := range 80 {
			s.happen()
			if rng.IntN(8) == 0 {
				again := replayed(t, s.Log, cfg)
				want, got := s.Decide(), again.Decide()
				if !reflect.DeepEqual(got, want) || !again.Wake.Equal(s.Wake) {
					t.Fatalf("seed %d, moment %d: after a restart %v, without %v", seed, moment, decidertest.Names(got),
						decidertest.Names(want))
				}
				s.Log = again
			}
			facts := s.Settle()
			groups += len(openedGroups(facts))
			s.note(facts)
		}
		checkBooks(t, s)
	}
	if groups < 60 {
		t.Errorf("the schedules open only %d groups", groups)
	}
}

// checkBooks counts anew what the state has counted.
func checkBooks(t *testing.T, s *schedule) {
	t.Helper()
	st, _, err := stateOf(s.Log)
	if err != nil {
		t.Fatal(err)
	}
	d := NewDecider(testRun, s.cfg)
	var groups, running, tokens, batched int64
	for p, err := range projection.Scan[capacityUse](s.View(), counted) {
		if err != nil {
			t.Fatal(err)
		}
		groups++
		if !p.Complete {
			running++
			continue
		}
		tokens += d.tokens(p)
		if p.Batched {
			batched += d.tokens(p)
		}
	}
	if st.Uncovered != groups || st.Running != running || st.UncoveredTokens != tokens || st.BatchedTokens != batched {
		t.Errorf("the books say %+v, but there are %d groups, %d running, with %d tokens, %d in batches", st, groups,
			running, tokens, batched)
	}
}
