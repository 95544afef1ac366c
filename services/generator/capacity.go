package generator

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/pipeline/presence"
)

// Times and steps of what is said of capacities.
const (
	// LookEvery is how often one of the generators looks how much the servers of a run have to do.
	LookEvery = 2 * time.Second
	// sayEvery is how often at most it states what follows.
	sayEvery = 10 * time.Second
	// noticeable is by what part of the number stated last another one must
	// differ, and at least by two.
	noticeable = 0.1
)

// capacities estimate what the servers of runs with `in_flight: auto` can do.
type capacities struct {
	mu   sync.Mutex
	runs map[string]*capacity
}

type capacity struct {
	fleet.Capacity
	// stated is the capacity that the log was seen to end with, and since is its time;
	// nil: it was not looked at.
	stated *events.CapacityMeasured
	since  time.Time
}

// estimate is the estimate of a run. A generator that looks for the first time begins a new
// one, which loses little.
func (c *capacities) estimate(run string) *capacity {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs[run] == nil {
		const most = 1024 // runs; closed ones are not told apart
		if len(c.runs) >= most {
			c.runs = nil
		}
		if c.runs == nil {
			c.runs = map[string]*capacity{}
		}
		c.runs[run] = &capacity{}
	}
	return c.runs[run]
}

// round looks at the servers of a run that follows their capacity. An external one follows its
// harness. The log is read when there may be something to state.
func (s *Service) round(ctx context.Context, run string,
	cfg runfile.RunConfig) (handle pipeline.Handler, wait time.Duration, err error) {
	s.compareSlots(run, cfg, time.Now())
	if cfg.InFlight != runfile.AutoInFlight || cfg.External {
		return nil, presence.EndedAfter, nil
	}
	servers, first := s.servers.Servers(ctx, run, &cfg)
	if !first {
		return nil, LookEvery, nil
	}
	c := s.capacities.estimate(run)
	measured := Measured(servers, c.Look(time.Now(), servers))
	if c.stated != nil && !Noticeable(c.stated, time.Since(c.since), measured) {
		return nil, LookEvery, nil
	}
	return func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
		return s.measured(ctx, m.Log, c, run, cfg.Policy, measured)
	}, LookEvery, nil
}

// Measured is what follows from a look at servers.
func Measured(servers []fleet.Server, turns []int) (m events.CapacityMeasured) {
	for i, s := range servers {
		one := events.ServerCapacity{URL: s.URL, Turns: turns[i], Measured: s.Load != nil}
		if s.Load != nil {
			one.Running, one.Waiting, one.KVUsage = s.Load.Running, s.Load.Waiting,
				math.Round(float64(1000*s.Load.KVUsage))/1000
		}
		m.Turns += one.Turns
		m.Servers = append(m.Servers, one)
	}
	m.Turns = min(m.Turns, 100000)
	return m
}

// Noticeable reports whether a capacity is stated that differs from the one stated last, some time
// ago; nil where there is none.
func Noticeable(last *events.CapacityMeasured, since time.Duration, m events.CapacityMeasured) bool {
	if last == nil {
		return true
	}
	differs := math.Abs(float64(m.Turns-last.Turns)) >= max(2, float64(noticeable*float64(last.Turns)))
	return since >= sayEvery && (differs || !slices.Equal(last.Unmeasured(), m.Unmeasured()))
}

// measured states a capacity behind the one stated last, if it differs noticeably.
func (s *Service) measured(ctx context.Context, log eventlog.Reader, c *capacity, run, policy string,
	m events.CapacityMeasured) ([]events.Event, error) {
	fact, err := events.New(run, events.CapacityMeasuredType, policy, "0", m)
	if err != nil {
		return nil, err
	}
	fact, link, err := log.BehindLast(ctx, fact)
	if err != nil {
		return nil, err
	}
	if link != nil {
		stated, err := events.Data[events.CapacityMeasured](*link)
		if err != nil {
			return nil, err
		}
		c.stated, c.since = &stated, link.Time
	}
	if !Noticeable(c.stated, time.Since(c.since), m) {
		return nil, nil
	}
	if servers := m.Unmeasured(); len(servers) > 0 &&
		(c.stated == nil || !slices.Equal(c.stated.Unmeasured(), servers)) {
		s.logger.Warn("server load unknown", "run", run, "servers", servers, "turns", m.Turns,
			"do", runfile.LoadUnknownDo)
	}
	fact.ID = events.ID(run, events.CapacityMeasuredType, policy, events.Ordinal(int64(fact.Prev)))
	return []events.Event{fact}, nil
}
