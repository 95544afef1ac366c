package outsiders

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/audit"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// enough is more time than any of it takes.
const enough = 9 * time.Minute

// TestExternalRun hands groups of a harness in that lives elsewhere, until the
// run's steps are trained.
func TestExternalRun(t *testing.T) {
	cfg := servicetest.Config()
	cfg.External, cfg.Endpoint, cfg.Steps = true, "", 2
	cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 2}}
	cfg.Features = []string{runfile.FeatureFeedbackRewards}
	p := newPlane(t, cfg)

	p.open("x1", "theirs", enough, enough)
	p.open("xtwo", "theirs", enough, enough, enough)
	p.score("xtwo-1", "theirs", 0.25)
	p.score("x1-0", "theirs", 1)
	p.score("x1-1", "theirs", 0)
	p.score("xtwo-0", "theirs", 0.75)
	p.must(events.RolloutFailedType, "xtwo-2", events.RolloutFailed{Stage: "harness", Class: events.ClassSandbox,
		Message: "lost"})
	first := p.batch(1)
	if !slices.Equal(first.Groups, []string{"x1", "xtwo"}) ||
		!slices.Equal(first.Rollouts, []string{"x1-0", "x1-1", "xtwo-0", "xtwo-1"}) || first.Sampled != 12 {
		t.Errorf("the first batch is %+v", first)
	}
	p.trained(1)

	// One member's outcome never comes, one is not even started, and one is scored by a user.
	p.open("x3", "theirs", enough, time.Second)
	p.score("x3-0", "theirs", 1)
	p.open("x4", "theirs", enough, enough)
	p.finish("x4-0", "theirs")
	p.must(events.FeedbackRecordedType, "x4-0", events.FeedbackRecorded{Signal: events.SignalAccept})
	p.score("x4-1", "theirs", 0)
	second := p.batch(2)
	if !slices.Equal(second.Rollouts, []string{"x3-0", "x4-0", "x4-1"}) &&
		!slices.Equal(second.Rollouts, []string{"x4-0", "x4-1", "x3-0"}) {
		t.Errorf("the second batch is %+v", second)
	}
	failed := servicetest.WaitData[events.RolloutFailed](t, p.log, "r", events.RolloutFailedType, "x3-1")
	if failed.Class != events.ClassDeadline || failed.Stage != events.StageSampler {
		t.Errorf("the silent member failed as %+v", failed)
	}
	if err := p.submit(events.RolloutFinishedType, "x3-1",
		servicetest.Finished(t, p.log.Store(), "r", "x3-1",
			servicetest.Trajectory("r", "x3-1", "theirs"))); err == nil ||
		!strings.Contains(err.Error(), "has failed already: sampler: deadline") {
		t.Errorf("an end after the deadline: %v", err)
	}
	p.must(events.GroupOpenedType, "x5", events.GroupOpened{Task: "theirs", Size: 2})
	p.must(events.RolloutStartedType, "x5-1", events.RolloutStarted{Group: "x5", Member: 1, Task: "theirs",
		Deadline: time.Now().Add(enough).UTC()})
	p.trained(2)

	closed := servicetest.WaitData[events.RunClosed](t, p.log, "r", events.RunClosedType, "r")
	if !strings.Contains(closed.Reason, "2 steps") {
		t.Errorf("closed because %q", closed.Reason)
	}
	servicetest.Wait(t, p.log, "r", events.GroupCompletedType, "x5", 1)
	report := p.prove()
	if b := report.Feeds[0]; b.Started != 11 || b.Trained != 7 || b.Failed != 4 || !b.AddsUp() {
		t.Errorf("the books say %+v", b)
	}
	if own := servicetest.All(t, p.log, "r", events.TurnSampledType); len(own) != 0 {
		t.Errorf("the generator sampled %v", servicetest.IDs(own))
	}
}

// TestQueriesBecomeBatches: a user's query is answered by a group of its own, and what users make
// of the answers is the reward.
func TestQueriesBecomeBatches(t *testing.T) {
	cfg := servicetest.Config("a")
	cfg.External = true // but for queries it opens nothing
	url, asked := endpoint(t)
	cfg.Endpoint = url
	cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}}
	cfg.Features, cfg.Traffic = runfile.Features, runfile.Traffic{Rate: 0.5}
	p := newPlane(t, cfg)

	p.must(events.QuerySubmittedType, "q-anna", events.QuerySubmitted{Instruction: "Why is it slow?", Task: "a",
		Session: "anna", Consent: true})
	servicetest.Wait(t, p.log, "r", events.RolloutFinishedType, "g000001-0", 1)
	// perhaps before its end
	p.must(events.FeedbackRecordedType, "g000001-1", events.FeedbackRecorded{Signal: events.SignalReject})
	p.must(events.FeedbackRecordedType, "g000001-0", events.FeedbackRecorded{Signal: events.SignalFollow,
		Text: "really?"})
	p.must(events.FeedbackRecordedType, "g000001-0", events.FeedbackRecorded{Signal: events.SignalAccept})
	batch := p.batch(1)
	if !slices.Equal(batch.Groups, []string{"g000001"}) || len(batch.Rollouts) != 2 || batch.RewardMean != 0.5 {
		t.Errorf("the batch is %+v", batch)
	}
	if instruction := <-asked; instruction != "Why is it slow?" {
		t.Errorf("the model was asked %q", instruction)
	}
	p.must(events.RunClosedType, "r", events.RunClosed{})
	if b := p.prove().Feeds[0]; b.Started != 2 || !b.AddsUp() {
		t.Errorf("the books say %+v", b)
	}
}

// TestOutcomesRaceWithDeadlines: outsiders state outcomes in the moment in which the deadlines
// pass. Each rollout has one.
func TestOutcomesRaceWithDeadlines(t *testing.T) {
	cfg := servicetest.Config()
	cfg.External, cfg.Endpoint, cfg.GroupSize = true, "", 1
	cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 1}}
	p := newPlane(t, cfg)
	const size = 24
	p.must(events.GroupOpenedType, "x1", events.GroupOpened{Task: "theirs", Size: size})
	late := time.Now().Add(1500 * time.Millisecond)
	refs := map[string]events.RolloutScored{}
	for i := range size {
		id := events.RolloutID("x1", i)
		p.must(events.RolloutStartedType, id, events.RolloutStarted{Group: "x1", Member: i,
			Task: "theirs", Deadline: late.UTC()})
		f := servicetest.Finished(t, p.log.Store(), "r", id, servicetest.Trajectory("r", id, "theirs"))
		// on a slow machine it is too late for that already
		if i%2 == 0 && p.submit(events.RolloutFinishedType, id, f) == nil {
			refs[id] = events.RolloutScored{Reward: 1, Trajectory: f.Trajectory}
		}
	}
	time.Sleep(time.Until(late) - 20*time.Millisecond) // the race is about this moment; nothing waits for it
	done := make(chan error, size)
	for i := range size {
		id := events.RolloutID("x1", i)
		go func() {
			if scored, ok := refs[id]; ok {
				done <- p.submit(events.RolloutScoredType, id, scored)
				return
			}
			done <- p.submit(events.RolloutFailedType, id,
				events.RolloutFailed{Stage: "harness", Class: events.ClassInternal})
		}()
	}
	stated := 0
	for range size {
		err := <-done
		if err == nil {
			stated++
		} else if !strings.Contains(err.Error(), "failed already") &&
			!strings.Contains(err.Error(), "with other content") {
			t.Error(err)
		}
	}
	completed := servicetest.WaitData[events.GroupCompleted](t, p.log, "r", events.GroupCompletedType, "x1")
	if len(completed.Members) != size {
		t.Errorf("the group has %d members", len(completed.Members))
	}
	t.Logf("%d of %d outcomes were the outsider's", stated, size)
	if len(servicetest.All(t, p.log, "r", events.RolloutScoredType, events.RolloutFailedType)) != size {
		t.Error("not every rollout has one outcome")
	}
	report, err := audit.Check(t.Context(), p.log.Reader, "r")
	if err != nil || len(report.Findings) > 0 {
		t.Errorf("%v, %v", report.Findings, err)
	}
}
