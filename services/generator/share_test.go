package generator

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/pipeline/presence"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// coldServer counts the requests that are under way, and compares them with what the ramp of one process would allow: one at first, one more with each answer, and twice as
// many with each five seconds.
type coldServer struct {
	mu                  sync.Mutex
	began               time.Time
	inFlight, answered  int
	most, beyond, count int
}

func (s *coldServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	if s.count++; s.count == 1 {
		s.began = time.Now()
	}
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	if ramp := float64(1+s.answered) * math.Exp2(math.Floor(time.Since(s.began).Seconds()/5)); float64(s.inFlight) > ramp {
		s.beyond++
	}
	s.mu.Unlock()
	time.Sleep(30 * time.Millisecond) // what a turn takes
	s.mu.Lock()
	s.inFlight--
	s.answered++
	s.mu.Unlock()
	fmt.Fprint(w, final)
}

// TestManyGeneratorsOneRamp: generators that ask the same cold server have together no more requests under way than one of them would have.
func TestManyGeneratorsOneRamp(t *testing.T) {
	const generators, groups = 4, 48
	log, cold := natstest.Log(t), &coldServer{}
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
	for n := range generators {
		env := servicetest.Env(t, log)
		env.Instance = fmt.Sprint("generator-", n)
		opts, servers := DefaultOptions(), servicetest.Fleet(t, env, nil)
		opts.Slots = 8
		ends = append(ends, servicetest.Start(t, func(ctx context.Context) error { return Run(ctx, env, servers, opts) }))
	}
	for g := range groups {
		servicetest.StartRollout(t, log, "r", events.RolloutID(events.GroupID(int64(g+1)), 0), "a")
	}
	for g := range groups {
		servicetest.Wait(t, log, "r", events.RolloutFinishedType, events.RolloutID(events.GroupID(int64(g+1)), 0), 1)
	}
	cold.mu.Lock()
	t.Logf("%d requests, at most %d at once", cold.count, cold.most)
	if cold.beyond > 0 {
		t.Errorf("%d of %d requests came while one generator's ramp would have had no place for them", cold.beyond, cold.count)
	}
	if cold.most < 2 {
		t.Error("the ramp never went up")
	}
	cold.mu.Unlock()
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
