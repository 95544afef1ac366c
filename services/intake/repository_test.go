package intake

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// TestRepositoriesOfUsers are taken where the run wants them, of users who agreed, if a
// sandbox can unpack them.
func TestRepositoriesOfUsers(t *testing.T) {
	log := natstest.Log(t)
	cfg := servicetest.Config("a")
	cfg.Features, cfg.Traffic = []string{runfile.FeatureUserTraffic},
		runfile.Traffic{Rate: 1, Consent: runfile.ConsentOptional}
	servicetest.OpenRun(t, log, "plain", cfg)
	cfg.Features = append(slices.Clone(cfg.Features), runfile.FeatureUserRepositories)
	servicetest.OpenRun(t, log, "r", cfg)
	start(t, log)
	archive := servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{"main.go": "package main\n"}))
	big := servicetest.Blob(t, log.Store(), bytes.Repeat([]byte{1}, maxRepository+1))
	missing := archive
	missing.SHA256 = strings.Repeat("0", 64)
	missing.Key = storage.BlobKey(missing.SHA256)
	commit := strings.Repeat("a1", 20)
	query := func(change func(*events.QuerySubmitted)) events.QuerySubmitted {
		q := events.QuerySubmitted{Instruction: "Mend it.", Task: "a", Consent: true,
			Repository: &events.UserRepository{Archive: archive, Origin: "https://example.org/r.git", Commit: commit}}
		change(&q)
		return q
	}
	for name, c := range map[string]struct {
		run  string
		data events.QuerySubmitted
		want string
	}{
		"taken":             {"r", query(func(*events.QuerySubmitted) {}), ""},
		"unwanted":          {"plain", query(func(*events.QuerySubmitted) {}), "runs that do have user_repositories"},
		"without agreement": {"r", query(func(q *events.QuerySubmitted) { q.Consent = false }), "consent: "},
		"with a password": {"r",
			query(func(q *events.QuerySubmitted) { q.Repository.Origin = "https://me:secret@example.org/r" }),
			"repository.origin"},
		"no commit": {"r", query(func(q *events.QuerySubmitted) { q.Repository.Commit = "main" }), "commit"},
		"not in the store": {"r", query(func(q *events.QuerySubmitted) { q.Repository.Archive = missing }),
			"the store has no object"},
		"of others": {"r",
			query(func(q *events.QuerySubmitted) { q.Repository.Archive.Key = "runs/r/trajectories/x" }),
			"name an object below"},
		"too large": {"r", query(func(q *events.QuerySubmitted) { q.Repository.Archive = big }), "at most"},
		"no archive": {"r", query(func(q *events.QuerySubmitted) {
			q.Repository.Archive = servicetest.Blob(t, log.Store(), []byte("PK"))
		}), "repository.archive: want a tar"},
	} {
		t.Run(name, func(t *testing.T) {
			refused := outsider{t, log, c.run}.state(events.QuerySubmittedType,
				"q-"+strings.ReplaceAll(name, " ", "-"), c.data)
			if (c.want == "") != (refused == "") || !strings.Contains(refused, c.want) ||
				strings.Contains(refused, "secret") {
				t.Errorf("answered %q instead of %q", refused, c.want)
			}
		})
	}
	final := func(change func(*events.FeedbackRecorded)) events.FeedbackRecorded {
		f := events.FeedbackRecorded{Signal: events.SignalFollow, Text: "I did it.",
			Repository: &events.UserRepository{Archive: archive, Origin: "https://example.org/r.git", Commit: commit}}
		change(&f)
		return f
	}
	o := outsider{t, log, "r"}
	o.must(events.QuerySubmittedType, "q-theirs", events.QuerySubmitted{Instruction: "Mend it.",
		Task: "a", Consent: false})
	servicetest.StartRollout(t, log, "r", "g000001-0", "q-taken")
	servicetest.StartRollout(t, log, "r", "g000002-0", "q-theirs")
	servicetest.StartRollout(t, log, "r", "g000003-0", "a")
	for name, c := range map[string]struct {
		rollout string
		data    events.FeedbackRecorded
		want    string
	}{
		"in the end":    {"g000001-0", final(func(*events.FeedbackRecorded) {}), ""},
		"did not agree": {"g000002-0", final(func(*events.FeedbackRecorded) {}), "consent: "},
		"of no query": {"g000003-0", final(func(*events.FeedbackRecorded) {}),
			"repository: rollout g000003-0 answers no query"},
		"in the end, no archive": {"g000001-0", final(func(f *events.FeedbackRecorded) {
			f.Repository.Archive = servicetest.Blob(t, log.Store(), []byte("PK"))
		}), "repository.archive: want a tar"},
		"in the end, a password": {"g000001-0", final(
			func(f *events.FeedbackRecorded) { f.Repository.Origin = "https://me:secret@example.org/r" }),
			"repository.origin"},
		"in the end, too large": {"g000001-0", final(func(f *events.FeedbackRecorded) { f.Repository.Archive = big }),
			"at most"},
		"in the end, not in hand": {"g000001-0", final(
			func(f *events.FeedbackRecorded) { f.Repository.Archive = missing }), "the store has no object"},
	} {
		t.Run(name, func(t *testing.T) {
			refused := o.state(events.FeedbackRecordedType, c.rollout, c.data)
			if (c.want == "") != (refused == "") || !strings.Contains(refused, c.want) ||
				strings.Contains(refused, "secret") {
				t.Errorf("answered %q instead of %q", refused, c.want)
			}
		})
	}
	task, err := log.Task(t.Context(), "r", "q-taken")
	if err != nil || task.Snapshot != archive || task.HasVerifier() {
		t.Errorf("the query's task is %+v: %v", task, err)
	}
}
