package toolrunner

import (
	"fmt"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/pipeline/presence"
)

// TestReport: a runner says which rollouts' calls run and which sandboxes wait, those that work
// first, and no more than a report may hold.
func TestReport(t *testing.T) {
	s := &Service{opts: Options{Slots: 4}, held: &pool{boxes: map[string]*leased{}},
		offer: &offer{cpus: 8, memoryMB: 1024, labels: []string{"gpu"}}}
	for n := range 300 {
		s.held.boxes[fmt.Sprintf("live/g%06d-0", n)] = &leased{idle: time.Now().Add(-time.Hour)}
	}
	end := s.working.begin("live/g000500-1")
	r := s.report("host").Runner
	if r.Slots != 4 || r.Capacity != DefaultCapacity || r.Working != 1 || r.Held != 300 || r.CPUs != 8 ||
		r.MemoryMB != 1024 || len(r.Sandboxes) != presence.MaxSandboxes {
		t.Errorf("said %+v", r)
	}
	if first := r.Sandboxes[0]; first.Rollout != "g000500-1" || first.Run != "live" || !first.Working {
		t.Errorf("the first is %+v", first)
	}
	if second := r.Sandboxes[1]; second.Working || second.Rollout != "g000000-0" ||
		time.Since(second.Since) < time.Hour {
		t.Errorf("the second is %+v", second)
	}
	end()
	if r := s.report("host").Runner; r.Working != 0 || r.Sandboxes[0].Working {
		t.Error("a turn that is over still works")
	}
}
