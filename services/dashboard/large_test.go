package dashboard

import (
	"fmt"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// Measures of a large run.
const (
	largeGroup = 8 // rollouts
	largeTurns = 4
	largeBatch = 4 // groups
	largeTasks = 500
)

// bulk writes a run's events without waiting for each: it is the log's only writer, so it knows
// every sequence before the server says it.
type bulk struct {
	testing.TB
	log  *eventlog.Log
	run  string
	seq  uint64
	last map[string]uint64 // link of each chain
	at   time.Time
}

func newBulk(t testing.TB, log *eventlog.Log, run string) *bulk {
	t.Helper()
	cfg := servicetest.Config()
	for i := range largeTasks {
		cfg.Tasks = append(cfg.Tasks, servicetest.Config(fmt.Sprintf("task-%03d", i)).Tasks...)
	}
	servicetest.OpenRun(t, log, run, cfg)
	in, err := log.Incarnation(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	return &bulk{t, log, run, in.LastSeq, map[string]uint64{}, time.Now().UTC().Add(-time.Hour)}
}

func (b *bulk) put(typ events.Type, entity, ordinal string, data any) {
	b.Helper()
	e := servicetest.Event(b, b.run, typ, entity, ordinal, data)
	b.seq, b.at = b.seq+1, b.at.Add(10*time.Millisecond)
	e.Prev, e.Time = b.last[e.Chain()], b.at
	b.last[e.Chain()] = b.seq
	if _, err := b.log.JetStream().PublishMsgAsync(e.Message()); err != nil {
		b.Fatal(err)
	}
}

// settle waits until everything is on the log, in the order in which it was put.
func (b *bulk) settle() {
	b.Helper()
	select {
	case <-b.log.JetStream().PublishAsyncComplete():
	case <-time.After(5 * time.Minute):
		b.Fatal("the server does not take the events")
	}
	in, err := b.log.Incarnation(b.Context(), b.run)
	if err != nil || in.LastSeq != b.seq {
		b.Fatalf("the run has %d events, want %d: %v", in.LastSeq, b.seq, err)
	}
}

// groups lets so many more groups run to their end and into batches. One rollout of 50 fails; a
// version is published with each batch.
func (b *bulk) groups(from, to int) {
	b.Helper()
	tokens, logprobs := make([]int32, 200), make([]float32, 200)
	for i := range tokens {
		tokens[i], logprobs[i] = int32(i*7919%50_000), -float32(i%13)/10
	}
	for n := from; n < to; n++ {
		id, task, version := events.GroupID(int64(n+1)), fmt.Sprintf("task-%03d", n%largeTasks), int64(n/largeBatch)
		tr := servicetest.Trajectory(b.run, events.RolloutID(id, 0), task)
		tr.Messages[1].StartedAt, tr.Messages[1].Duration = b.at, time.Second
		finished := servicetest.Finished(b, b.log.Store(), b.run, events.RolloutID(id, 0), tr)
		b.put(events.GroupOpenedType, id, "0", events.GroupOpened{Task: task, Size: largeGroup, PolicyVersion: version})
		done := events.GroupCompleted{Task: task, Estimator: "grpo", Mean: 0.5}
		for i := range largeGroup {
			rollout := events.RolloutID(id, i)
			b.put(events.RolloutStartedType, rollout, "0",
				events.RolloutStarted{Group: id, Task: task, PolicyVersion: version, Deadline: b.at.Add(time.Hour)})
			for turn := range largeTurns {
				b.put(events.TurnSampledType, rollout, events.Ordinal(turn),
					events.TurnSampled{Turn: turn, Content: "I look at the comparison.",
						TokenIDs: tokens, Logprobs: logprobs,
						ToolCalls:  []events.ToolCall{{ID: "a", Name: "grep", Arguments: `{"pattern":"clamp"}`}},
						NewSegment: turn == 0, PolicyVersion: version, StartedAt: b.at, LatencyMS: 900})
				b.put(events.ToolsCompletedType, rollout, events.Ordinal(turn),
					events.ToolsCompleted{Turn: turn, Runner: "r", Isolation: "namespaces", Filesystem: "overlay",
						Results: []events.ToolResult{{CallID: "a", Name: "grep", Content: "clamp.sh:3",
							StartedAt: b.at, DurationMS: 30}}})
			}
			member := events.Member{Rollout: rollout, Reward: float64(i % 2), Shaped: float64(i % 2),
				Advantage: float64(i%2) - 0.5}
			if (n*largeGroup+i)%50 == 49 {
				b.put(events.RolloutFailedType, rollout,
					"0", events.RolloutFailed{Stage: events.StageTools,
						Class: events.ClassInternal, Message: "no room"})
				member = events.Member{Rollout: rollout, Failed: true}
			} else {
				b.put(events.RolloutFinishedType, rollout, "0", finished)
				b.put(events.RolloutScoredType, rollout,
					"0", events.RolloutScored{Reward: member.Reward, Trajectory: finished.Trajectory,
						TaskDigest: "sha256:" + task, DurationMS: 60})
			}
			done.Members = append(done.Members, member)
		}
		b.put(events.GroupCompletedType, id, "0", done)
		if step := int64(n/largeBatch + 1); n%largeBatch == largeBatch-1 {
			batch := events.BatchReady{Step: step, RewardMean: 0.5, Staleness: step % 3, Tokens: 4000}
			for k := n - largeBatch + 1; k <= n; k++ {
				group := events.GroupID(int64(k + 1))
				batch.Groups = append(batch.Groups, group)
				for i := range largeGroup {
					if (k*largeGroup+i)%50 != 49 {
						batch.Rollouts = append(batch.Rollouts, events.RolloutID(group, i))
					}
				}
			}
			b.put(events.BatchReadyType, "trainer", events.Ordinal(step), batch)
			b.put(events.BatchConsumedType, "trainer", "c"+events.Ordinal(step), events.BatchConsumed{Step: step})
		}
	}
	b.settle()
}
