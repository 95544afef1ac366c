package release

import (
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
)

var began = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// chain is a policy's chain, an hour between two facts.
func chain(t *testing.T, facts ...any) *State {
	t.Helper()
	s := &State{}
	for i, f := range facts {
		typ := events.WeightsPublishedType
		switch f.(type) {
		case events.WeightsPromoted:
			typ = events.WeightsPromotedType
		case events.WeightsJudged:
			typ = events.WeightsJudgedType
		}
		e, err := events.New(events.Catalogue, typ, "p", events.Ordinal(i), f)
		if err != nil {
			t.Fatal(err)
		}
		e.Seq, e.Time = uint64(i+1), began.Add(time.Duration(i)*time.Hour)
		if err := s.Take(e); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestNext(t *testing.T) {
	v := func(version int64) any { return events.WeightsPublished{Policy: "p", Version: version} }
	only := func(version int64) any { return events.WeightsPromoted{Version: version} }
	gate := func(version, against int64, verdict string) any {
		return events.WeightsJudged{Stage: events.JudgedGate, Version: version, Against: against, Verdict: verdict}
	}
	canary := func(version, against int64, verdict string) any {
		return events.WeightsJudged{Stage: events.JudgedCanary, Version: version, Against: against, Verdict: verdict}
	}
	share := func(judgement string) any {
		return events.WeightsPromoted{Version: 2, Share: 0.1, Before: 1, Judgement: judgement}
	}
	passed, failed := events.JudgedPassed, events.JudgedFailed
	each := Options{Share: 0.1}
	for name, c := range map[string]struct {
		facts []any
		o     Options
		want  Step
	}{
		"nothing is published": {nil, each, Step{Kind: Wait}},
		"nothing is promoted": {[]any{v(1), v(2)}, each,
			Step{Kind: Promote, Promotion: events.WeightsPromoted{Version: 2}, ID: "baseline-2-0"}},
		"the newest is promoted by hand": {[]any{v(1), only(0)}, each,
			Step{Kind: Promote, Promotion: events.WeightsPromoted{Version: 1}, ID: "baseline-1-2"}},
		"no newer one": {[]any{v(1), only(1)}, each, Step{Kind: Wait}},
		"the newest of several": {[]any{v(1), only(1), v(2), v(5)}, each,
			Step{Kind: Gate, Version: 5, Against: 1}},
		"a gate that was passed": {[]any{v(1), only(1), v(2), gate(2, 1, passed)}, each,
			Step{Kind: Promote, Promotion: events.WeightsPromoted{Version: 2, Share: 0.1, Before: 1},
				ID: "follows-gate-2-1"}},
		"without a canary": {[]any{v(1), only(1), v(2), gate(2, 1, passed)}, Options{},
			Step{Kind: Promote, Promotion: events.WeightsPromoted{Version: 2, Before: 1}, ID: "follows-gate-2-1"}},
		"a gate that was not": {[]any{v(1), only(1), v(2), gate(2, 1, failed)}, each, Step{Kind: Wait}},
		"a version after it": {[]any{v(1), only(1), v(2), gate(2, 1, failed), v(3)}, each,
			Step{Kind: Gate, Version: 3, Against: 1}},
		"the share that follows": {[]any{v(1), only(1), v(2), gate(2, 1, passed), share("j")}, each,
			Step{Kind: Canary, Version: 2, Against: 1}},
		"newer ones wait for a canary": {[]any{v(1), only(1), v(2), gate(2, 1, passed), share("j"), v(3)}, each,
			Step{Kind: Canary, Version: 2, Against: 1}},
		"a share by hand": {[]any{v(1), only(1), v(2), share("")}, each, Step{Kind: Wait}},
		"a canary that passed": {[]any{v(1), v(2), only(1), share("j"), canary(2, 1, passed)}, each,
			Step{Kind: Promote, Promotion: events.WeightsPromoted{Version: 2, Before: 1}, ID: "follows-canary-2-1"}},
		"a canary that failed": {[]any{v(1), v(2), only(1), share("j"), canary(2, 1, failed)}, each,
			Step{Kind: Promote, Promotion: events.WeightsPromoted{Version: 1, RolledBack: 2},
				ID: "follows-canary-2-1"}},
		"a canary without a result": {[]any{v(1), v(2), only(1), share("j"),
			canary(2, 1, events.JudgedNoResult)}, each,
			Step{Kind: Promote, Promotion: events.WeightsPromoted{Version: 1, RolledBack: 2},
				ID: "follows-canary-2-1"}},
		"a judged share is given again": {[]any{v(1), v(2), only(1), share("j"), canary(2, 1, failed), share("j")},
			each, Step{Kind: Wait}},
		"what was taken back is not judged": {[]any{v(1), v(2), only(2),
			events.WeightsPromoted{Version: 1, RolledBack: 2}}, each, Step{Kind: Wait}},
		"a person's promotion since": {[]any{v(1), v(2), only(1), gate(2, 1, passed), only(1)},
			each, Step{Kind: Wait}},
		"too few versions": {[]any{v(1), only(1), v(2), v(3)}, Options{Versions: 3}, Step{Kind: Wait}},
		"versions enough": {[]any{v(1), only(1), v(2), v(3), v(4)}, Options{Versions: 3},
			Step{Kind: Gate, Version: 4, Against: 1}},
		"the first is due at once": {[]any{v(1), only(1), v(2)}, Options{Every: 9 * time.Hour},
			Step{Kind: Gate, Version: 2, Against: 1}},
		"before its time": {[]any{v(1), only(1), v(2), gate(2, 1, failed), v(3)},
			Options{Every: 8 * time.Hour}, Step{Kind: Wait}},
		"at its time": {[]any{v(1), only(1), v(2), gate(2, 1, failed), v(3)},
			Options{Every: 7 * time.Hour}, Step{Kind: Gate, Version: 3, Against: 1}},
		"before its time, versions enough": {[]any{v(1), only(1), v(2), gate(2, 1, failed), v(3)},
			Options{Every: 8 * time.Hour, Versions: 1}, Step{Kind: Gate, Version: 3, Against: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := chain(t, c.facts...).Next(began.Add(10*time.Hour), c.o)
			why := got.Why
			if got.Kind == Wait && why == "" ||
				got.Kind == Promote && got.ID[0] == 'f' && got.Promotion.Judgement == "" ||
				got.Kind == Canary && got.Given.Data.Version != 2 {
				t.Errorf("%+v", got)
			}
			if got.Why, got.Promotion.Judgement, got.Given = "", "", c.want.Given; got != c.want {
				t.Errorf("%+v (%s), want %+v", got, why, c.want)
			}
		})
	}
}
