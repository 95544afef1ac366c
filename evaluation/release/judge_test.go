package release

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events"
)

// tries are attempts at tasks, two for each, with a reward that differs a little between them;
// the first ones have failed.
func tries(tasks, failed int, reward float64) (list []evaluation.Attempt) {
	for i := range 2 * tasks {
		a := evaluation.Attempt{Rollout: fmt.Sprintf("r%g-%d", reward, i), Task: fmt.Sprintf("t%03d", i/2),
			Reward: reward + 0.01*float64(i%2)}
		if i < failed {
			a = evaluation.Attempt{Rollout: a.Rollout, Task: a.Task, Failed: true}
		}
		list = append(list, a)
	}
	return list
}

// mixed are attempts at eight tasks whose rewards take turns.
func mixed(odd, even float64) (list []evaluation.Attempt) {
	for i := range 8 {
		list = append(list, evaluation.Attempt{Rollout: fmt.Sprintf("r%g-%d", odd, i), Task: fmt.Sprintf("t%03d", i),
			Reward: []float64{odd, even}[i%2]})
	}
	return list
}

func rules(change func(*events.JudgementRules)) events.JudgementRules {
	r := events.JudgementRules{By: ByReward, MaxLoss: 0.15, MaxFailed: 0.2, Rollouts: 10, PassAt: 0.5,
		Confidence: 0.95, Resamples: 1000}
	if change != nil {
		change(&r)
	}
	return r
}

func value(v float64) *float64 { return &v }

// TestGateRules: each rule keeps a version back, alone.
func TestGateRules(t *testing.T) {
	none := rules(nil)
	for name, c := range map[string]struct {
		rules            events.JudgementRules
		version, against []evaluation.Attempt
		missing          []string
		verdict, reason  string
	}{
		"better": {none, tries(8, 0, 0.6), tries(8, 0, 0.3), nil, events.JudgedPassed, ""},
		"the same": {none, tries(8, 0, 0.3), tries(8, 0, 0.3), nil, events.JudgedNoResult,
			"reward differs by 0 on each task"},
		"worse": {none, tries(8, 0, 0.2), tries(8, 0, 0.3), nil, events.JudgedFailed,
			"reward is significantly worse, by 0.1"},
		"too few tasks": {none, tries(5, 0, 0.6), tries(5, 0, 0.3), nil, events.JudgedNoResult,
			"both tried 5 tasks: fewer than 6 can't show a loss"},
		"not better": {rules(func(r *events.JudgementRules) { r.Better = true }), tries(8, 0, 0.3),
			tries(8, 0, 0.3), nil, events.JudgedFailed, "not significantly better"},
		"below the reward": {rules(func(r *events.JudgementRules) { r.MinReward = value(0.7) }), tries(8, 0, 0.6),
			tries(8, 0, 0.3), nil, events.JudgedFailed, "reward is 0.605, below 0.7"},
		"below the passes": {rules(func(r *events.JudgementRules) { r.MinPass = value(0.9) }), tries(8, 0, 0.4),
			tries(8, 0, 0.3), nil, events.JudgedFailed, "pass@1 is 0, below 0.9"},
		"at the reward": {rules(func(r *events.JudgementRules) { r.MinReward = value(0.605) }), tries(8, 0, 0.6),
			tries(8, 0, 0.3), nil, events.JudgedPassed, ""},
		"a loss possible": {none, mixed(0.3, 0.9), mixed(0.9, 0.3), nil, events.JudgedFailed, "may be lower by "},
		"a loss allowed": {rules(func(r *events.JudgementRules) { r.MaxLoss = 1 }), mixed(0.3, 0.9), mixed(0.9, 0.3),
			nil, events.JudgedPassed, ""},
		"passes decide": {rules(func(r *events.JudgementRules) { r.By, r.MaxLoss = ByPass, 0.4 }), tries(8, 0, 0.6),
			tries(8, 0, 0.7), nil, events.JudgedPassed, ""},
		"fewer passes": {rules(func(r *events.JudgementRules) { r.By = ByPass }), tries(8, 0, 0.4),
			tries(8, 0, 0.7), nil, events.JudgedFailed, "pass@1 is significantly worse"},
		"too many failed": {none, tries(8, 4, 0.6), tries(8, 0, 0.3), nil, events.JudgedNoResult,
			"4 of 16 attempts of version 2 failed"},
		"of the other": {none, tries(8, 0, 0.6), tries(8, 4, 0.3), nil, events.JudgedNoResult,
			"4 of 16 attempts of version 1 failed"},
		"nothing": {none, nil, tries(8, 0, 0.3), nil, events.JudgedNoResult,
			"no attempt of version 2 was scored"},
		"closed early": {none, tries(8, 0, 0.6), tries(8, 0, 0.3), []string{"run e: closed before"},
			events.JudgedNoResult, "closed before"},
		"other tasks": {none, tries(8, 0, 0.6), []evaluation.Attempt{{Rollout: "a", Task: "b"}}, nil,
			events.JudgedNoResult, "no task has a scored attempt in both"},
	} {
		t.Run(name, func(t *testing.T) {
			j := events.WeightsJudged{Version: 2, Against: 1, Stage: events.JudgedGate, Rules: c.rules}
			if err := judgeGate(&j, c.version, c.against, c.missing); err != nil {
				t.Fatal(err)
			}
			held(t, j, c.verdict, c.reason)
		})
	}
}

func held(t *testing.T, j events.WeightsJudged, verdict, reason string) {
	t.Helper()
	if said := strings.Join(j.Reasons, "; "); j.Verdict != verdict || !strings.Contains(said, reason) ||
		(reason == "") != (said == "") {
		t.Errorf("%s: %s, want %s: %s", j.Verdict, said, verdict, reason)
	}
}

// scattered are attempts at two tasks that come out in any way: the difference between two
// versions is 0, and may be large.
func scattered(from int) (list []evaluation.Attempt) {
	for i := range 8 {
		list = append(list, evaluation.Attempt{Rollout: fmt.Sprintf("s%d-%d", from, i), Task: fmt.Sprintf("t%d", i%2),
			Reward: float64((i/2 + from) % 2)})
	}
	return list
}

// TestCanaryRules: a version that is worse, fails more often, has too few outcomes, or is not known
// to be as good is not promoted.
func TestCanaryRules(t *testing.T) {
	for name, c := range map[string]struct {
		rules            events.JudgementRules
		version, against []evaluation.Attempt
		verdict, reason  string
	}{
		"better": {rules(nil), tries(20, 0, 0.6), tries(20, 0, 0.3), events.JudgedPassed, ""},
		"worse": {rules(nil), tries(20, 0, 0.2), tries(20, 0, 0.3), events.JudgedFailed,
			"reward is significantly worse"},
		"fails more": {rules(func(r *events.JudgementRules) { r.MaxFailed = 1 }), tries(20, 12, 0.6),
			tries(20, 0, 0.3), events.JudgedFailed, "0.3 of the rollouts failed, and 0 of the others"},
		"nothing shown": {rules(func(r *events.JudgementRules) { r.Rollouts = 2 }), scattered(1), scattered(0),
			events.JudgedFailed, "may be lower by "},
		"both fail": {rules(func(r *events.JudgementRules) { r.MaxFailed = 1 }), tries(20, 12, 0.6),
			tries(20, 12, 0.3), events.JudgedPassed, ""},
		"fails too often": {rules(nil), tries(20, 12, 0.6), tries(20, 12, 0.3), events.JudgedNoResult,
			"12 of 40 attempts of version 2 failed"},
		"too few": {rules(func(r *events.JudgementRules) { r.Rollouts = 50 }), tries(20, 0, 0.6),
			tries(30, 0, 0.3), events.JudgedNoResult, "version 2 has 40 of 50 outcomes"},
		"too few others": {rules(func(r *events.JudgementRules) { r.Rollouts = 50 }), tries(30, 0, 0.6),
			tries(20, 0, 0.3), events.JudgedNoResult, "version 1 has 40 of 50 outcomes"},
		"few and worse": {rules(func(r *events.JudgementRules) { r.Rollouts = 50 }), tries(20, 0, 0.2),
			tries(30, 0, 0.3), events.JudgedFailed, "significantly worse"},
		"none": {rules(nil), nil, tries(20, 0, 0.3), events.JudgedNoResult,
			"no attempt of version 2 was scored"},
		"other tasks": {rules(nil), tries(20, 0, 0.6), []evaluation.Attempt{{Rollout: "a", Task: "b"}},
			events.JudgedNoResult, "no task has attempts enough of both"},
	} {
		t.Run(name, func(t *testing.T) {
			j := events.WeightsJudged{Version: 2, Against: 1, Stage: events.JudgedCanary, Rules: c.rules}
			if err := judgeCanary(&j, c.version, c.against); err != nil {
				t.Fatal(err)
			}
			held(t, j, c.verdict, c.reason)
		})
	}
}
