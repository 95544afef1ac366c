package dashboard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// BenchmarkPages asks for the list of 200 runs, and for a run of 10,000 rollouts: first, when it is folded already, and as of its middle.
func BenchmarkPages(b *testing.B) {
	log := natstest.Log(b)
	for n := range 199 {
		servicetest.OpenRun(b, log, fmt.Sprintf("run-%03d", n), servicetest.Config("fix"))
	}
	servicetest.OpenRun(b, log, "large", servicetest.Config("fix"))
	put := func(typ events.Type, entity string, prev uint64, data any) uint64 {
		e := servicetest.Event(b, "large", typ, entity, "0", data)
		e.Prev = prev
		stored, _, err := log.Append(b.Context(), e)
		if err != nil {
			b.Fatal(err)
		}
		return stored.Seq
	}
	for n := range 10_000 {
		id := events.RolloutID(events.GroupID(int64(n/8+1)), n%8)
		if n%8 == 0 {
			put(events.GroupOpenedType, events.GroupOf(id), 0, events.GroupOpened{Task: "fix", Size: 8})
		}
		seq := put(events.RolloutStartedType, id, 0, events.RolloutStarted{Group: events.GroupOf(id), Task: "fix", Deadline: time.Now().Add(time.Hour)})
		put(events.RolloutScoredType, id, seq, events.RolloutScored{Reward: float64(n % 2)})
	}
	in, err := log.Incarnation(b.Context(), "large")
	if err != nil {
		b.Fatal(err)
	}
	ask := func(b *testing.B, d *Dashboard, path string) {
		w := httptest.NewRecorder()
		d.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK {
			b.Fatalf("%s: %d", path, w.Code)
		}
	}
	d := open(b, log)
	for name, path := range map[string]string{
		"runs": "/", "run": "/runs/large", "curves": "/runs/large/curves", "past": fmt.Sprintf("/runs/large?at=%d", in.LastSeq/2), "group": "/runs/large/groups/g000100",
		"rollout": "/runs/large/rollouts/g000100-1",
	} {
		b.Run(name, func(b *testing.B) {
			held, release, err := d.shelf.hold("large", 0) // as an open page does
			if err != nil {
				b.Fatal(err)
			}
			defer release()
			held.await(b.Context(), in.LastSeq)
			for b.Loop() {
				ask(b, d, path)
			}
		})
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			ask(b, open(b, log), "/runs/large")
		}
	})
}
