package trainerfeeder

import (
	"fmt"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/storage"
)

// BenchmarkComplete gives the tokens a second that a feeder composes of stored trajectories into a
// stored batch of 16 groups of 8.
func BenchmarkComplete(b *testing.B) {
	for _, tokens := range []int{1 << 10, 8 << 10} {
		b.Run(fmt.Sprint(tokens), func(b *testing.B) {
			cfg := runfile.DefaultRunConfig()
			cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 16}}
			store := natstest.Store(b)
			d := NewDecider(testRun, cfg, cfg.Feeds[0], store)
			log := decidertest.New(b, testRun, d)
			for n := range int64(16) {
				longGroup(b, log, store, n+1, tokens)
			}
			fact := log.Decide()[0]
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.Complete(b.Context(), log.View(), fact); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(16*8*tokens)*float64(b.N)/1e6/b.Elapsed().Seconds(), "Mtok/s")
		})
	}
}

// longGroup completes a group of eight rollouts, three quarters of whose tokens are sampled.
func longGroup(b *testing.B, log *decidertest.Log, store storage.Store, n int64, tokens int) {
	b.Helper()
	id := events.GroupID(n)
	completed := events.GroupCompleted{Task: "task"}
	for i := range 8 {
		rollout := events.RolloutID(id, i)
		tr := &storage.Trajectory{Run: testRun, Group: id, Rollout: rollout, Task: "task",
			StopReason: events.StopFinished}
		for turn := range tokens / 512 {
			for _, m := range []storage.Message{longMessage("user", 128, false), longMessage("assistant", 384, true)} {
				m.Index, m.Turn = int32(len(tr.Messages)), int32(turn)
				for k := range m.TokenIDs {
					m.TokenIDs[k] = int32((turn*7919 + k*104729 + i) % 50000)
				}
				tr.Messages = append(tr.Messages, m)
			}
		}
		data, err := storage.EncodeTrajectory(tr)
		if err != nil {
			b.Fatal(err)
		}
		ref, err := storage.PutBlob(b.Context(), store, data)
		if err != nil {
			b.Fatal(err)
		}
		log.Happen(events.RolloutStartedType, rollout, events.RolloutStarted{Group: id, Member: i})
		log.Happen(events.RolloutFinishedType, rollout,
			events.RolloutFinished{StopReason: events.StopFinished, Tokens: tokens, Trajectory: ref})
		log.Happen(events.RolloutScoredType, rollout, events.RolloutScored{Reward: float64(i % 2), Trajectory: ref})
		completed.Members = append(completed.Members, events.Member{Rollout: rollout, Reward: float64(i % 2),
			Advantage: float64(i%2) - 0.5})
	}
	log.Happen(events.GroupCompletedType, id, completed)
}

func longMessage(role string, n int, sampled bool) storage.Message {
	m := storage.Message{Role: role, TokenIDs: make([]int32, n), Logprobs: make([]float32, n),
		LossMask: make([]bool, n), PolicyVersion: -1}
	if sampled {
		m.PolicyVersion = 0
		for i := range n {
			m.LossMask[i], m.Logprobs[i] = true, -float32(i)*0.00123
		}
	}
	return m
}
