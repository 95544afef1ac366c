package servicetest

import (
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// Trajectory is the record of a rollout of one turn, with three sampled
// tokens after a prompt of two.
func Trajectory(run, rollout, task string) *storage.Trajectory {
	return &storage.Trajectory{
		Run: run, Group: events.GroupOf(rollout), Rollout: rollout, Task: task, StopReason: events.StopFinished,
		Messages: []storage.Message{
			{Role: "user", Content: "Do it.", PolicyVersion: -1, TokenIDs: []int32{1, 2}, Logprobs: make([]float32, 2),
				LossMask: make([]bool, 2)},
			{Index: 1, Role: "assistant", Content: "Done.", TokenIDs: []int32{3, 4, 5}, Logprobs: []float32{-1, -2, -3},
				LossMask: []bool{true, true, true}, FinishReason: "stop"},
		},
	}
}

// Finished stores a trajectory's file under the name for a rollout of a run, and makes the fact
// that says what is in it.
func Finished(t testing.TB, store storage.Store, run, rollout string, tr *storage.Trajectory) events.RolloutFinished {
	t.Helper()
	data, err := storage.EncodeTrajectory(tr)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := storage.PutNamed(t.Context(), store, "runs/"+run+"/trajectories/"+rollout, "arrow", data)
	if err != nil {
		t.Fatal(err)
	}
	f := events.RolloutFinished{
		Task: tr.Task, StopReason: tr.StopReason, Samples: len(tr.Samples()), TextOnly: tr.TextOnly, Trajectory: ref,
		MinVersion: tr.DispatchVersion, MaxVersion: tr.DispatchVersion,
	}
	for _, m := range tr.Messages {
		f.Tokens += len(m.TokenIDs)
		if m.Role == "assistant" {
			f.Turns, f.Sampled = int(m.Turn)+1, f.Sampled+len(m.TokenIDs)
			f.MinVersion, f.MaxVersion = min(f.MinVersion, m.PolicyVersion), max(f.MaxVersion, m.PolicyVersion)
		}
	}
	return f
}
