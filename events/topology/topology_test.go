package topology

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

func TestTypes(t *testing.T) {
	if !slices.IsSorted(events.Types()) || len(events.Types()) != len(events.Definitions) {
		t.Error("types are not sorted, or not all there")
	}
	for _, typ := range events.Types() {
		if !runfile.ValidToken(typ.Kind()) || !runfile.ValidToken(typ.Name()) {
			t.Errorf("%s has no kind or no name that a subject can hold", typ)
		}
		if events.Payload(typ) == nil || events.Payload(typ) == events.Payload(typ) {
			t.Errorf("%s has no payload of its own", typ)
		}
	}
	if unknown := events.Type("rollout.teleported"); unknown.IsDefined() || unknown.FromOutside() || unknown.Routed() ||
		events.Payload(unknown) != nil {
		t.Error("an unknown type is known")
	}
}

func TestStreams(t *testing.T) {
	for run, want := range map[string]string{"r": "RONDO_r", "_": events.CatalogueStream, "a_b-c": "RONDO_a_b-c"} {
		t.Run(run, func(t *testing.T) {
			if got := events.RunStream(run); got != want {
				t.Errorf("run %s has stream %s, want %s", run, got, want)
			}
			if got, ok := events.RunOfStream(want); !ok || got != run {
				t.Errorf("stream %s is of run %q, %v", want, got, ok)
			}
		})
	}
	for _, name := range []string{events.IntakeStream, events.DeadStream, "ORDERS", LeaseStream} {
		if run, ok := events.RunOfStream(name); ok {
			t.Errorf("stream %s is of run %q", name, run)
		}
	}
	if s := Stream("RONDO_r"); s.Name != "RONDO_r" ||
		!slices.Equal(s.Subjects, []string{"rondo.v1.r.>"}) || s.WorkQueue {
		t.Errorf("stream of a run: %+v", s)
	}
	for _, s := range Streams {
		if s.MaxBytes <= 0 || s.Purpose == "" || len(s.Subjects) == 0 {
			t.Errorf("%s: a stream needs a limit, a purpose and subjects: %+v", s.Name, s)
		}
		if got := Stream(s.Name); s.Name != Streams[0].Name && got.Name != s.Name {
			t.Errorf("%s is found as %s", s.Name, got.Name)
		}
	}
}

// matches reports whether a NATS filter covers a subject.
func matches(filter, subject string) bool {
	f, s := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, token := range f {
		switch {
		case token == ">":
			return len(s) > i
		case i >= len(s) || token != "*" && token != s[i]:
			return false
		}
	}
	return len(f) == len(s)
}

// Every consumer sees exactly the events of its type, and its acknowledgements fit its heartbeats.
func TestConsumers(t *testing.T) {
	names := map[string]bool{}
	for _, spec := range Consumers {
		if names[spec.Name] {
			t.Errorf("two consumers are called %s", spec.Name)
		}
		names[spec.Name] = true
		if spec.AckWait < 5*time.Second || spec.AckWait > time.Minute || spec.MaxDeliver < 2 || spec.MaxAckPending < 1 {
			t.Errorf("%s: %+v", spec.Name, spec)
		}
		c := spec.For("r", "pool-a")
		if c.Shared() {
			c = c.ForQueue(Queue{Name: "batch+r"})
		}
		if strings.ContainsAny(c.Name+c.Stream, "<>") {
			t.Errorf("%s of stream %s: a placeholder is left", c.Name, c.Stream)
		}
		if spec.PerRun() != (c.Stream == "RONDO_r") {
			t.Errorf("%s is on stream %s", c.Name, c.Stream)
		}
		if c.Type == "" {
			if f := c.Filter(""); f != "" {
				t.Errorf("%s of the whole stream has the filter %s", c.Name, f)
			}
			continue
		}
		run, _ := events.RunOfStream(c.Stream)
		for _, typ := range events.Types() {
			e := events.Event{Run: run, Type: typ, Entity: "x"}
			if typ.Routed() {
				e.Route = "pool-a"
			}
			if got := matches(c.Filter("pool-a"), e.Subject()); got != (typ == c.Type) {
				t.Errorf("%s with filter %s gets %s: %v", c.Name, c.Filter("pool-a"), e.Subject(), got)
			}
		}
		if other := (events.Event{Run: run, Type: c.Type, Entity: "x", Route: runfile.RouteFinal}); c.Type.Routed() &&
			matches(c.Filter("pool-a"), other.Subject()) {
			t.Errorf("%s gets what is for another route: %s", c.Name, other.Subject())
		}
	}
}

// What is consumed is stated by somebody, and what is stated is known.
func TestServices(t *testing.T) {
	stated := map[events.Type]bool{events.LogForgottenType: true} // by the command line: retention is no service
	services := map[string]bool{}
	for _, s := range Services {
		services[s.Name] = true
		for _, typ := range s.Emits {
			if !typ.IsDefined() {
				t.Errorf("%s states the unknown type %s", s.Name, typ)
			}
			stated[typ] = true
		}
		if s.Deciding == (len(ConsumersOf(s.Name)) > 0) {
			t.Errorf("%s: a deciding service folds, an effect service has consumers", s.Name)
		}
	}
	for _, typ := range events.Types() {
		if !stated[typ] {
			t.Errorf("nobody states %s", typ)
		}
	}
	for _, c := range Consumers {
		if !services[c.Service] && c.Service != Environment || c.Type != "" && !c.Type.IsDefined() {
			t.Errorf("%s is of service %s and type %s", c.Name, c.Service, c.Type)
		}
	}
}

// TestQueues: each submission is in one queue, which another run's, another kind's and another
// policy's are not in, and no two queues select the same.
func TestQueues(t *testing.T) {
	subjects := map[string]string{
		"rondo.in.r.batch.trainer.consumed": "r+batch", "rondo.in.r.batch.second.rewound": "r+batch",
		"rondo.in.r.query.*.submitted": "r+query", "rondo.in.other.batch.trainer.consumed": "other+batch",
		"rondo.in.r.rollout.x1-0.scored": "r+rollout", "rondo.in.fresh.run.fresh.opened": "fresh+run",
		"rondo.in.r.batch": "", "rondo.in.r": "", "rondo.in.r.batch.x.y.z": "r+batch",
		"rondo.in._.weights.small.submitted": "_+weights+small",
		"rondo.in._.weights.large.submitted": "_+weights+large", "rondo.in._.weights.small": "",
		"rondo.in._.weights.a b.submitted": "",
	}
	queues := map[string]Queue{}
	for subject, want := range subjects {
		q, ok := QueueOf(subject)
		if !ok || !matches(q.Filter, subject) || want != "" && q.Name != want ||
			want == "" && !strings.HasPrefix(q.Name, "other+") {
			t.Errorf("%s is in %+v, %v", subject, q, ok)
		}
		if earlier, known := queues[q.Name]; known && earlier != q {
			t.Errorf("two queues are called %s: %+v and %+v", q.Name, earlier, q)
		}
		queues[q.Name] = q
	}
	for subject := range subjects {
		own, _ := QueueOf(subject)
		for _, q := range queues {
			if matches(q.Filter, subject) != (q == own) {
				t.Errorf("%s is in the queues %+v and %+v", subject, q, own)
			}
		}
	}
	for _, subject := range []string{"rondo.in.*.batch.trainer.consumed", "rondo.in.r.*.x.y", "rondo.in.r.>",
		"rondo.in._.weights.*.submitted"} {
		if q, ok := QueueOf(subject); ok {
			t.Errorf("%s, which selects others too, is in %+v", subject, q)
		}
	}
	if q, _ := QueueOf("rondo.in.r.exploded.x.y"); q.Kind != "" {
		t.Errorf("a kind that no outsider states: %+v", q)
	}
}
