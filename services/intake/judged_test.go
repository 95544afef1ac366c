package intake

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestJudgements: a version is judged once in a stage, of what there is; a promotion that names a
// judgement is the one that it leads to, and none that something else came before.
func TestJudgements(t *testing.T) {
	log := house(t)
	for _, version := range []int64{1, 2, 3} {
		servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType,
			"small", events.Ordinal(version), events.WeightsPublished{Policy: "small", Version: version}))
	}
	start(t, log)
	n := 0
	say := func(typ events.Type, data any) (seq uint64, refused string) {
		t.Helper()
		body, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		n++
		answer := send(t, log, submission{events.IntakeSubject(events.Catalogue, typ, "small"),
			map[string]string{events.HeaderMessageID: fmt.Sprint("m", n)}, string(body)})
		return answer.Sequence, answer.Error
	}
	judge := func(change func(*events.WeightsJudged)) (uint64, string) {
		t.Helper()
		j := events.WeightsJudged{
			Version: 2, Against: 1, Stage: events.JudgedGate, Verdict: events.JudgedPassed,
			Sources: []events.JudgedSource{},
			Rules:   events.JudgementRules{By: "reward", PassAt: 1, Confidence: 0.95, Resamples: 1000},
		}
		change(&j)
		return say(events.WeightsJudgedType, j)
	}
	refused := func(what, got, want string) {
		t.Helper()
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	for want, change := range map[string]func(*events.WeightsJudged){
		"version 9 of policy small was never published": func(j *events.WeightsJudged) { j.Version = 9 },
		"version 8 of policy small was never published": func(j *events.WeightsJudged) { j.Against = 8 },
		"cannot be judged against itself":               func(j *events.WeightsJudged) { j.Against = 2 },
		"give the reasons": func(
			j *events.WeightsJudged) {
			j.Verdict = events.JudgedFailed
		},
		"and of no other stage's": func(
			j *events.WeightsJudged) {
			j.Stage = events.JudgedCanary
		},
		"is no weights.promoted that gives version 2": func(j *events.WeightsJudged) {
			j.Stage,
				j.Promotion = events.JudgedCanary, 1
		},
		"verdict": func(j *events.WeightsJudged) { j.Verdict = "good" },
		"stage":   func(j *events.WeightsJudged) { j.Stage = "whim" },
	} {
		_, got := judge(change)
		refused(want, got, want)
	}

	first, got := judge(func(*events.WeightsJudged) {})
	refused("the gate", got, "")
	if again, got := judge(func(*events.WeightsJudged) {}); got != "" || again != first {
		t.Errorf("the same again: sequence %d after %d, %s", again, first, got)
	}
	_, got = judge(func(j *events.WeightsJudged) { j.Verdict, j.Reasons = events.JudgedFailed, []string{"a whim"} })
	refused("another verdict", got, "already recorded at sequence")

	id := events.ID(events.Catalogue, events.WeightsJudgedType, "small", "gate-2-1")
	for want, p := range map[string]events.WeightsPromoted{
		"there is no such weights.judged":    {Version: 2, Before: 1, Judgement: "gate-2-1"},
		"version 3 does not follow":          {Version: 3, Before: 1, Judgement: id},
		"version 1 does not follow":          {Version: 1, RolledBack: 2, Judgement: id},
		"version 2 does not follow from the": {Version: 2, Share: 0.1, Before: 3, Judgement: id},
	} {
		_, got := say(events.WeightsPromotedType, p)
		refused(want, got, want)
	}
	given, got := say(events.WeightsPromotedType, events.WeightsPromoted{Version: 2, Share: 0.1,
		Before: 1, Judgement: id})
	refused("the share", got, "")
	canary := func(j *events.WeightsJudged) {
		j.Stage, j.Promotion, j.Verdict, j.Reasons = events.JudgedCanary, given, events.JudgedFailed, []string{"worse"}
	}
	_, got = judge(func(j *events.WeightsJudged) { canary(j); j.Against = 3 })
	refused("a canary beside another version", got, "beside version 3")
	_, got = judge(canary)
	refused("the canary", got, "")

	id = events.ID(events.Catalogue, events.WeightsJudgedType, "small", "canary-2-1")
	_, got = say(events.WeightsPromotedType, events.WeightsPromoted{Version: 2, Before: 1, Judgement: id})
	refused("a promotion after a canary that failed", got, "does not follow from the judgement")
	_, got = say(events.WeightsPromotedType, events.WeightsPromoted{Version: 3})
	refused("a person's choice", got, "")
	_, got = say(events.WeightsPromotedType, events.WeightsPromoted{Version: 1, RolledBack: 2, Judgement: id})
	refused("a rollback after it", got, "something else was promoted since the judgement")
}
