package blast_test

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/services/trainerfeeder"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/projection"
	planes "github.com/rondo-rl/rondo/tests/plane"
)

// jam is a feed that can be made to panic.
type jam struct {
	*trainerfeeder.Decider
	jammed *atomic.Bool
}

func (j jam) Decide(v projection.View, asOf uint64, now time.Time) ([]events.Event, time.Time, error) {
	if j.jammed.Load() {
		panic("the second feed is jammed")
	}
	return j.Decider.Decide(v, asOf, now)
}

// says wants words in the reason of a pause.
func says(t *testing.T, paused events.RunPaused, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(paused.Reason, w) {
			t.Errorf("the reason %q does not say %q", paused.Reason, w)
		}
	}
}

// findings are what the checker has against the poisoned run: about the sequences from first on,
// and about none before. Its books add up.
func (p *plane) findings(first uint64, want ...string) {
	p.t.Helper()
	report, err := audit.Check(p.t.Context(), p.log.Reader, poison)
	if err != nil {
		p.t.Fatal(err)
	}
	var rules []string
	for _, f := range report.Findings {
		if rules = append(rules, f.Rule); f.Rule == audit.RuleLedger || f.Sequence < first {
			p.t.Error(f)
		}
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(rules, " "), w) {
			p.t.Errorf("the checker finds %v, want %s", report.Findings, w)
		}
	}
	if len(want) == 0 && len(rules) > 0 {
		p.t.Errorf("the checker finds %v", report.Findings)
	}
}

// raw puts a message on the poisoned run's stream, as somebody may who has an
// administrator's rights and no manners.
func (p *plane) raw(m *nats.Msg) (seq uint64) {
	p.t.Helper()
	ack, err := p.log.JetStream().PublishMsg(p.t.Context(), m)
	if err != nil {
		p.t.Fatal(err)
	}
	return ack.Sequence
}

// TestNonsenseOnTheLog: a fact in due form whose body says nothing. What is decided without it
// might be wrong, so nothing is.
func TestNonsenseOnTheLog(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := start(t)
		p.open(poison, "xbad", enough)
		e := servicetest.Event(t, poison, events.RolloutScoredType, "xbad-0", "0", map[string]any{"reward": "a lot"})
		e.Time = time.Now()
		if last, err := p.log.Last(t.Context(), poison, "rollout", "xbad-0"); err != nil {
			t.Fatal(err)
		} else {
			e.Prev = last.Seq
		}
		seq := p.raw(e.Message())
		says(t, p.goesOn(), "is stuck", "fold sequence "+events.Ordinal(int64(seq)), "reward")
		p.findings(seq, audit.RuleIdentity)
		p.untouched()
	})
}

// TestNoEventAtAll: bytes of somebody on a rollout's chain. They stop nobody who reads, but nothing
// can be appended behind them, so the rollout cannot fail by its deadline.
func TestNoEventAtAll(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := start(t)
		p.open(poison, "xbad", 20*time.Second)
		seq := p.raw(&nats.Msg{Subject: events.Event{Run: poison, Type: events.RolloutFinishedType,
			Entity: "xbad-1"}.Subject(), Data: []byte("{")})
		p.step(poison) // others of the same run go on until then
		says(t, p.goesOn(), topology.QuerySampler+" is stuck", "rollout.xbad-1",
			"sequence "+events.Ordinal(int64(seq)), "malformed")
		p.findings(seq, audit.RuleIdentity)
		p.untouched()
	})
}

// TestHostileTrajectories: the intake refuses a file that is cut off, is none, claims more than
// there is, or is too large, and its rollout fails at its deadline.
func TestHostileTrajectories(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := start(t)
		p.open(poison, "xbad", 20*time.Second)
		good, err := storage.EncodeTrajectory(servicetest.Trajectory(poison, "xbad-0", "theirs"))
		if err != nil {
			t.Fatal(err)
		}
		claims := bytes.Clone(good) // the lengths in its footer
		for i := len(claims) - 200; i < len(claims)-20; i++ {
			claims[i] = 0x7f
		}
		for name, c := range map[string]struct {
			data []byte
			want string
		}{
			"cut off": {good[:len(good)/2], "trajectory"}, "none": {[]byte("PK\x03\x04"), "trajectory"},
			"claims": {claims, "trajectory"},
			"huge":   {append(bytes.Clone(good), make([]byte, 65<<20)...), "trajectory"},
		} {
			ref, err := storage.PutNamed(t.Context(), p.log.Store(),
				"runs/"+poison+"/trajectories/xbad-0", "arrow", c.data)
			if err != nil {
				t.Fatal(err)
			}
			f := servicetest.Finished(t, p.log.Store(), poison,
				"xbad-0", servicetest.Trajectory(poison, "xbad-0", "theirs"))
			f.Trajectory = ref
			if err := p.submit(poison, events.RolloutFinishedType, "xbad-0", f); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for p.steps[healthy] < steps-1 {
			p.step(healthy)
			time.Sleep(10 * time.Second)
		}
		failed := servicetest.WaitData[events.RolloutFailed](t, p.log, poison, events.RolloutFailedType, "xbad-0")
		if failed.Class != events.ClassDeadline {
			t.Errorf("it failed by %+v", failed)
		}
		p.step(poison) // the run is well
		planes.Prove(t, p.log, poison)
		p.untouched()
	})
}

// TestTrajectoryChangesLater: a file that was admitted and is another one when its batch is made.
// Put right, the run goes on.
func TestTrajectoryChangesLater(t *testing.T) {
	for name, change := range map[string]func(good []byte) []byte{
		"cut off": func(good []byte) []byte { return good[:len(good)/2] },
		"another": func(good []byte) []byte { return bytes.Repeat([]byte{0xff}, len(good)) },
		"gone":    func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Virtual(t, func(t *testing.T) {
				p := start(t)
				p.open(poison, "xbad", enough)
				ref := p.score(poison, "xbad-0", 1)
				good, err := p.log.Store().Get(t.Context(), ref.Key)
				if err != nil {
					t.Fatal(err)
				}
				put := func(data []byte) {
					t.Helper()
					err := p.log.Store().Delete(t.Context(), ref.Key)
					if err == nil && data != nil {
						err = p.log.Store().Put(t.Context(), ref.Key, data)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				put(change(good))
				p.score(poison, "xbad-1", 0)
				says(t, p.goesOn(), topology.TrainerFeeder, "batch 2", "trajectory of xbad-0", ref.Key)
				p.findings(1, audit.RuleObject)
				p.untouched()
				put(good)
				p.must(poison, events.RunResumedType, poison, events.RunResumed{})
				p.batch(poison, "trainer", 2)
				p.second(2)
				planes.Prove(t, p.log, poison)
			})
		})
	}
}

// TestFeedPanics: one feed of a run fails whatever comes. The run's other feed, and all
// of the other run's, go on.
func TestFeedPanics(t *testing.T) {
	natstest.Virtual(t, func(t *testing.T) {
		p := start(t)
		p.jammed.Store(true)
		p.step(poison) // of the other feed
		says(t, p.goesOn(), topology.TrainerFeeder+"/second is stuck", "panicked: the second feed is jammed")
		p.findings(0)
		p.untouched()
		p.jammed.Store(false)
		p.must(poison, events.RunResumedType, poison, events.RunResumed{})
		p.second(2)
		p.step(poison)
		p.second(3)
		planes.Prove(t, p.log, poison)
	})
}
