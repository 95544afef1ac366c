package trainerfeeder

import (
	"cmp"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline/decidertest"
	"github.com/rondo-rl/rondo/storage"
)

const testRun = "r"

// desk is a feeder's log and store. Batches have two groups, groups two members.
type desk struct {
	*decidertest.Log
	t     *testing.T
	store storage.Store
	d     *Decider
}

func newDesk(t *testing.T, changes ...func(*runfile.RunConfig)) *desk {
	t.Helper()
	cfg := runfile.DefaultRunConfig()
	cfg.Staleness.Max = 1
	cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 2}, {Name: "other", GroupsPerBatch: 1}}
	for _, change := range changes {
		change(&cfg)
	}
	store := natstest.Store(t)
	d := NewDecider(testRun, cfg, cfg.Feeds[0], store)
	return &desk{Log: decidertest.New(t, testRun, d), t: t, store: store, d: d}
}

// ending is how a rollout ended, and what happened to it.
type ending struct {
	reward      float64
	failed      bool
	textOnly    bool
	invalidated bool
	// shaped is the reward that was compared, where it is another one.
	shaped *float64
	stop   string // finished
	prompt int    // tokens more than three
	split  bool   // into two samples
	// constrained is how many of the three sampled tokens were sampled under a constraint:
	// none, the first two, or all.
	constrained int
	// masked: its first sample is not trained on, by the run's rule "titles".
	masked bool
	// unsampled: the model ended its turns at once.
	unsampled bool
}

// tokens of the rollout's trajectory, three of which are sampled.
func (e ending) tokens() int { return 7 + e.prompt }

func (e ending) sampled() int {
	switch {
	case e.unsampled, e.masked && !e.split:
		return 0
	case e.masked:
		return 1
	}
	return 3
}

// group lets a group run from its start at a version to its completion.
func (k *desk) group(n, version int64, endings ...ending) string {
	k.t.Helper()
	k.open(n, version, len(endings))
	return k.end(n, version, endings...)
}

// open opens a group and starts its rollouts.
func (k *desk) open(n, version int64, size int) {
	k.t.Helper()
	id := events.GroupID(n)
	k.Happen(events.GroupOpenedType, id, events.GroupOpened{Task: "task", Size: size, PolicyVersion: version})
	for i := range size {
		k.Happen(events.RolloutStartedType, events.RolloutID(id, i),
			events.RolloutStarted{Group: id, Member: i, PolicyVersion: version})
	}
}

// end ends the rollouts of an open group, and completes it.
func (k *desk) end(n, version int64, endings ...ending) string {
	k.t.Helper()
	id := events.GroupID(n)
	completed := events.GroupCompleted{Task: "task"}
	var sum, scored float64
	for i, e := range endings {
		rollout := events.RolloutID(id, i)
		m := events.Member{Rollout: rollout, Failed: e.failed}
		if e.failed {
			k.Happen(events.RolloutFailedType, rollout, events.RolloutFailed{})
		} else {
			stop := cmp.Or(e.stop, events.StopFinished)
			ref := k.trajectory(id, rollout, version, e, stop)
			finished := events.RolloutFinished{StopReason: stop, Tokens: e.tokens(), Sampled: e.sampled(),
				Constrained: e.constrained, TextOnly: e.textOnly, Trajectory: ref}
			if e.masked {
				finished.Masked = map[string]int{"titles": 3 - e.sampled()}
			}
			k.Happen(events.RolloutFinishedType, rollout, finished)
			k.Happen(events.RolloutScoredType, rollout,
				events.RolloutScored{Reward: e.reward, TextOnly: e.textOnly, Trajectory: ref,
					Components: map[string]float64{"tests": e.reward}})
			m.Reward, m.Shaped, m.Advantage = e.reward, e.reward, e.reward-0.5
			if e.shaped != nil {
				m.Shaped = *e.shaped
			}
			sum, scored = sum+e.reward, scored+1
		}
		completed.Members = append(completed.Members, m)
	}
	if scored > 0 {
		completed.Mean = sum / scored
	}
	for i, e := range endings {
		if e.invalidated {
			k.Happen(events.RolloutInvalidatedType, events.RolloutID(id, i), events.RolloutInvalidated{Reason: "x"})
		}
	}
	k.Happen(events.GroupCompletedType, id, completed)
	return id
}

// trajectory stores a small trajectory: a prompt, two tokens sampled, a tool's
// answer, one token sampled.
func (k *desk) trajectory(group, rollout string, version int64, e ending, stop string) storage.Ref {
	k.t.Helper()
	tr := &storage.Trajectory{Run: testRun, Group: group, Rollout: rollout, Task: "task", StopReason: stop,
		DispatchVersion: version, TextOnly: e.textOnly}
	for i, m := range []storage.Message{
		{Role: "user", TokenIDs: append([]int32{1, 2, 3}, make([]int32, e.prompt)...), PolicyVersion: -1},
		{Role: "assistant", TokenIDs: []int32{4, 5}, LossMask: []bool{true, true}, Logprobs: []float32{-0.1, -0.2},
			PolicyVersion: version},
		{Role: "tool", TokenIDs: []int32{6}, PolicyVersion: -1},
		{Role: "assistant", Turn: 1, TokenIDs: []int32{7}, LossMask: []bool{true}, Logprobs: []float32{-0.3},
			PolicyVersion: version + 1},
	} {
		m.Index = int32(i)
		m.Constrained = m.LossMask != nil && e.constrained >= 2+int(m.Turn)
		if m.LossMask == nil {
			m.LossMask, m.Logprobs = make([]bool, len(m.TokenIDs)), make([]float32, len(m.TokenIDs))
		}
		if e.unsampled && m.Role == "assistant" {
			m.TokenIDs, m.LossMask, m.Logprobs = nil, nil, nil
		}
		if e.textOnly {
			m.TokenIDs, m.LossMask, m.Logprobs = nil, nil, nil
		}
		if e.split && i > 1 {
			m.Segment = 1
		}
		if e.masked && m.Segment == 0 {
			tr.Masked, m.LossMask = map[int32]string{0: "titles"}, make([]bool, len(m.TokenIDs))
		}
		tr.Messages = append(tr.Messages, m)
	}
	data, err := storage.EncodeTrajectory(tr)
	if err != nil {
		k.t.Fatal(err)
	}
	ref, err := storage.PutBlob(k.t.Context(), k.store, data)
	if err != nil {
		k.t.Fatal(err)
	}
	return ref
}

// files reads the files of a batch.
func (k *desk) files(b events.BatchReady) (files []*storage.Batch) {
	k.t.Helper()
	for _, ref := range b.Files {
		data, err := storage.GetBlob(k.t.Context(), k.store, ref)
		if err != nil {
			k.t.Fatal(err)
		}
		file, err := storage.DecodeBatch(data)
		if err != nil {
			k.t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

func (k *desk) version(n int64) {
	k.Happen(events.WeightsPublishedType, "policy", events.WeightsPublished{Version: n, Run: testRun})
}

func (k *desk) consumed(step int64) {
	k.Happen(events.BatchConsumedType, "trainer", events.BatchConsumed{Step: step})
}

// batch settles, and reads the one batch that comes of it.
func (k *desk) batch() events.BatchReady {
	k.t.Helper()
	facts := k.Settle()
	if len(facts) != 1 || facts[0].Type != events.BatchReadyType || facts[0].Entity != "trainer" {
		k.t.Fatalf("got %v, want one batch", decidertest.Names(facts))
	}
	return decidertest.Data[events.BatchReady](k.t, facts[0])
}

func (k *desk) nothing(why string) {
	k.t.Helper()
	if facts := k.Settle(); len(facts) != 0 {
		k.t.Errorf("%s: %v", why, decidertest.Names(facts))
	}
}

var good = []ending{{reward: 1}, {reward: 0}}

// feed changes the first feed of a desk.
func feed(change func(*runfile.Feed)) func(*runfile.RunConfig) {
	return func(cfg *runfile.RunConfig) { change(&cfg.Feeds[0]) }
}
