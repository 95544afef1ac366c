package generator

import (
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// TestReportedVersions: a turn has the version that its server reported and the policy has reached. What nobody reported is unknown in the fact and
// in the trajectory, and not guessed.
func TestReportedVersions(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType, "small", "3", events.WeightsPublished{Policy: "small", Version: 3}))
	of := func(version string) answer {
		return text(strings.Replace(final, `"id"`, `"weight_version":`+version+`,"id"`, 1))
	}
	for name, c := range map[string]struct {
		answer answer
		want   int64
	}{
		"none":      {text(final), runfile.UnknownVersion},
		"no-number": {of(`"default"`), runfile.UnknownVersion},
		"older":     {of("0"), 0},
		"published": {of("3"), 3},
		"to-come":   {of("4"), runfile.UnknownVersion},
		"far-away":  {of("9223372036854775807"), runfile.UnknownVersion},
	} {
		t.Run(name, func(t *testing.T) {
			e := serve(t, c.answer)
			cfg := servicetest.Config("a")
			cfg.Endpoint = e.URL + "/v1"
			servicetest.OpenRun(t, log, name, cfg)
			servicetest.Append(t, log, servicetest.Event(t, name, events.RolloutStartedType, rollout, "0", events.RolloutStarted{
				Group: events.GroupOf(rollout), Task: "a", PolicyVersion: 1, Deadline: time.Now().Add(time.Hour),
			}))
			finished := servicetest.WaitData[events.RolloutFinished](t, log, name, events.RolloutFinishedType, rollout)
			if got := turns(t, log, name, 1)[0].PolicyVersion; got != c.want {
				t.Errorf("a turn of version %d, want %d", got, c.want)
			}
			if low, high := min(1, max(c.want, 0)), max(1, c.want); c.want == runfile.UnknownVersion && (finished.MinVersion != 1 || finished.MaxVersion != 1) ||
				c.want != runfile.UnknownVersion && (finished.MinVersion != low || finished.MaxVersion != high) {
				t.Errorf("the rollout is of versions %d to %d", finished.MinVersion, finished.MaxVersion)
			}
			data, err := storage.GetBlob(t.Context(), log.Store(), finished.Trajectory)
			if err != nil {
				t.Fatal(err)
			}
			tr, err := storage.DecodeTrajectory(data)
			if err != nil {
				t.Fatal(err)
			}
			samples := tr.Samples()
			if len(samples) != 1 || len(samples[0].PolicyVersions) != 1 || samples[0].PolicyVersions[0].Version != c.want {
				t.Errorf("the sample has the versions %+v", samples[0].PolicyVersions)
			}
		})
	}
}
