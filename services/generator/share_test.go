package generator

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline/presence"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// coldServer counts the requests that are under way.
type coldServer struct {
	mu       sync.Mutex
	inFlight int
	most     int
	two      chan struct{} // closed when two were under way at once
}

func (s *coldServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	s.inFlight++
	if s.most < 2 && s.inFlight == 2 {
		close(s.two)
	}
	s.most = max(s.most, s.inFlight)
	s.mu.Unlock()
	select { // a slow machine brings the second one late
	case <-s.two:
	case <-time.After(time.Second):
	}
	time.Sleep(30 * time.Millisecond) // what a turn takes
	s.mu.Lock()
	s.inFlight--
	s.mu.Unlock()
	fmt.Fprint(w, final)
}

// TestManyGenerators: each of several generators asks the server, they know of each other, and the
// first of them alone looks at the server's load.
func TestManyGenerators(t *testing.T) {
	const generators, groups = 4, 48
	log, cold := natstest.Log(t), &coldServer{two: make(chan struct{})}
	server := httptest.NewServer(cold)
	t.Cleanup(server.Close)
	cfg := servicetest.Config("a")
	cfg.Endpoint = server.URL + "/v1"
	servicetest.OpenRun(t, log, "r", cfg)
	heard, mu := map[string]bool{}, sync.Mutex{} // the generators that were allowed something
	stop, err := presence.Hear(log.Conn(), func(r presence.Report) {
		mu.Lock()
		defer mu.Unlock()
		heard[r.Name] = heard[r.Name] || len(r.Servers) > 0
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	var ends []func()
	var fleets []*fleet.Fleet
	for n := range generators {
		env := servicetest.Env(t, log)
		env.Instance = fmt.Sprint("generator-", n)
		opts, servers := DefaultOptions(), servicetest.Fleet(t, env, nil)
		opts.Slots = 8
		fleets = append(fleets, servers)
		ends = append(ends, servicetest.Start(t, func(ctx context.Context) error {
			return Run(ctx, env, servers,
				opts)
		}))
	}
	for g := range groups {
		servicetest.StartRollout(t, log, "r", events.RolloutID(events.GroupID(int64(g+1)), 0), "a")
	}
	for g := range groups {
		servicetest.Wait(t, log, "r", events.RolloutFinishedType, events.RolloutID(events.GroupID(int64(g+1)), 0), 1)
	}
	if cold.mu.Lock(); cold.most < 2 {
		t.Error("the ramp never went up")
	}
	cold.mu.Unlock()
	natstest.Eventually(t, "each knows of all", func() bool {
		looks := 0
		for _, f := range fleets {
			n, first := f.Peers()
			if n != generators {
				return false
			}
			if first {
				looks++
			}
		}
		return looks == 1
	})
	natstest.Eventually(t, "more than one generator asks the server", func() bool {
		mu.Lock()
		defer mu.Unlock()
		asked := 0
		for _, has := range heard {
			if has {
				asked++
			}
		}
		return asked > 1
	})
	for _, end := range ends {
		end()
	}
}
