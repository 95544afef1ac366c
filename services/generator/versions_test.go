package generator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// TestReportedVersions: a turn has the version that its server reported and the policy has reached.
// What nobody reported is unknown in the fact and in the trajectory, and not guessed.
func TestReportedVersions(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType, "small",
		"3", events.WeightsPublished{Policy: "small", Version: 3}))
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
			servicetest.Append(t, log, servicetest.Event(t, name, events.RolloutStartedType, rollout,
				"0", events.RolloutStarted{
					Group: events.GroupOf(rollout), Task: "a", PolicyVersion: 1, Deadline: time.Now().Add(time.Hour),
				}))
			finished := servicetest.WaitData[events.RolloutFinished](t, log, name, events.RolloutFinishedType, rollout)
			if got := turns(t, log, name, 1)[0].PolicyVersion; got != c.want {
				t.Errorf("a turn of version %d, want %d", got, c.want)
			}
			if low, high := min(1, max(c.want, 0)), max(1, c.want); c.want == runfile.UnknownVersion &&
				(finished.MinVersion != 1 || finished.MaxVersion != 1) ||
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
			if len(samples) != 1 || len(samples[0].PolicyVersions) != 1 ||
				samples[0].PolicyVersions[0].Version != c.want {
				t.Errorf("the sample has the versions %+v", samples[0].PolicyVersions)
			}
		})
	}
}

// TestVersionsOfTokens: where weights change within a turn, fact, trajectory and samples say which
// of its tokens are of which version, as vLLM and SGLang report it. A version that was not
// published is unknown, and only that one.
func TestVersionsOfTokens(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType, "small",
		"3", events.WeightsPublished{Policy: "small", Version: 3}))
	spans := func(first, second string) string {
		return `"weight_versions":[{"version":"` + first + `","start":0,"end":1},{"version":"` + second +
			`","start":1,"end":2}],`
	}
	vllm := func(first, second string) answer {
		return text(strings.Replace(final, `"token_ids"`, spans(first, second)+`"token_ids"`, 1))
	}
	sglang := `{"choices":[{"finish_reason":"stop","message":{"content":"Done."},"prompt_token_ids":[1,2,3],
		"meta_info":{"weight_version":"3",` + spans("2", "3") + `"output_token_logprobs":[[-0.5,4,null],[-1,5,null]]}}]}`
	span := func(version int64, start int) events.VersionSpan {
		return events.VersionSpan{Version: version, Start: start, End: start + 1}
	}
	for name, c := range map[string]struct {
		answer   answer
		version  int64
		spans    []events.VersionSpan
		min, max int64
		unknown  int
	}{
		"vllm":          {vllm("2", "3"), 2, []events.VersionSpan{span(2, 0), span(3, 1)}, 1, 3, 0},
		"sglang":        {text(sglang), 2, []events.VersionSpan{span(2, 0), span(3, 1)}, 1, 3, 0},
		"older":         {vllm("0", "1"), 0, []events.VersionSpan{span(0, 0), span(1, 1)}, 0, 1, 0},
		"to-come":       {vllm("3", "4"), -1, []events.VersionSpan{span(3, 0), span(-1, 1)}, 1, 3, 1},
		"both-to-come":  {vllm("4", "5"), -1, nil, 1, 1, 2},
		"without-label": {vllm("default", "3"), -1, []events.VersionSpan{span(-1, 0), span(3, 1)}, 1, 3, 1},
		"same":          {vllm("3", "3"), 3, nil, 1, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e := serve(t, c.answer)
			cfg := servicetest.Config("a")
			cfg.Endpoint = e.URL + "/v1"
			servicetest.OpenRun(t, log, name, cfg)
			servicetest.Append(t, log, servicetest.Event(t, name, events.RolloutStartedType, rollout,
				"0", events.RolloutStarted{
					Group: events.GroupOf(rollout), Task: "a", PolicyVersion: 1, Deadline: time.Now().Add(time.Hour),
				}))
			f, tr := finished(t, log, name)
			turn := turns(t, log, name, 1)[0]
			if turn.PolicyVersion != c.version || !slices.Equal(turn.VersionSpans, c.spans) {
				t.Errorf("the turn is of version %d, %+v", turn.PolicyVersion, turn.VersionSpans)
			}
			if f.MinVersion != c.min || f.MaxVersion != c.max || f.UnknownVersions != c.unknown {
				t.Errorf("the rollout is of versions %d to %d, %d tokens of none", f.MinVersion,
					f.MaxVersion, f.UnknownVersions)
			}
			want := []storage.VersionSegment{{Start: 3, Length: 2, Version: c.version}}
			if c.spans != nil {
				want = []storage.VersionSegment{{Start: 3, Length: 1, Version: c.spans[0].Version},
					{Start: 4, Length: 1, Version: c.spans[1].Version}}
			}
			if got := tr.Samples()[0].PolicyVersions; !slices.Equal(got, want) {
				t.Errorf("the sample has the versions %+v, want %+v", got, want)
			}
			if asked := e.seen()[0].body; !asked.ReturnWeightVersions {
				t.Errorf("the server was not asked for them: %+v", asked)
			}
		})
	}
}
