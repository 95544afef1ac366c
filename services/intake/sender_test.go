package intake

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

func TestSenders(t *testing.T) {
	log := house(t)
	servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType, "small",
		"0", events.WeightsPublished{Policy: "small"}))
	senders, err := newSenders(log.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for subject, want := range map[string]sender{
		"rondo.in.r.batch.trainer.consumed":       {"trainer of feed trainer of run r", "trainer", false},
		"rondo.in.r.batch.invented.consumed":      {"trainer of run r", "trainer", false},
		"rondo.in.r.rollout.x1-0.scored":          {"harness of run r", "harness", false},
		"rondo.in.r.query.q1.submitted":           {"product of run r", "product", false},
		"rondo.in.r.run.r.paused":                 {"operator of run r", "operator", false},
		"rondo.in.old.run.old.paused":             {"operator of run old", "operator", false},
		"rondo.in.r.rollout.g000001-0.annotated":  {"rollout.annotated of run r", "rollout.annotated", false},
		"rondo.in.r.rollout.g000001-0.exploded":   {"other of run r", "other", false},
		"rondo.in.r.nonsense":                     {"other of run r", "other", false},
		"rondo.in.r.run.r.paused.twice":           {"other of run r", "other", false},
		"rondo.in.invented.run.invented.opened":   {"operator of run invented", "operator", true},
		"rondo.in.IN.run.IN.opened":               {"operator of run IN", "operator", true},
		"rondo.in._.weights.small.submitted":      {"trainer of weights small", "trainer", false},
		"rondo.in._.weights.small.activated":      {"inference of weights small", "inference", false},
		"rondo.in._.weights.invented.submitted":   {"trainer of weights invented", "trainer", true},
		"rondo.in._.run.r.paused":                 {"operator of run r", "operator", true},
		"rondo.in._.log.RONDO_IN-1.dead_lettered": {"other of log RONDO_IN-1", "other", true},
		"rondo.in._.weights.no name.submitted":    {"trainer of weights no name", "trainer", true},
		"rondo.in.":                               {"other of run ", "other", true},
		"rondo.in._":                              {"other of run _", "other", true},
	} {
		for range 2 { // the second answer is remembered
			if got, err := senders.find(t.Context(), subject); err != nil || got != want {
				t.Errorf("%s: %+v, %v", subject, got, err)
			}
		}
	}
}

// TestOneSenderFloods: while one sender is over its quotas, each other one of the same run still
// gets through at once, and what the flood was refused is counted.
func TestOneSenderFloods(t *testing.T) {
	log := house(t)
	env := servicetest.Env(t, log)
	startIn(t, env, Quotas{MessagesPerMinute: 20, DeadLettersPerDay: 5})
	over := 0
	for i := range 60 {
		if a := send(t, log, submission{subject: fmt.Sprintf("rondo.in.r.query.q%d.submitted", i),
			body: `garbage`}); a.RetryAfterMS > 0 {
			over++
		} else if a.Error == "" {
			t.Fatal("garbage was taken in")
		}
	}
	if over < 30 {
		t.Errorf("only %d of 60 messages were over the quota", over)
	}
	for _, k := range []submission{
		{subject: "rondo.in.r.batch.trainer.consumed", body: `{"step":1}`},
		{subject: "rondo.in.r.run.r.paused", body: `{}`},
		{subject: "rondo.in.r.rollout.g000001-0.annotated", body: `{"text":"hm"}`},
		{subject: "rondo.in._.weights.small.activated", body: `{"version":0,"replica":"x"}`},
	} {
		if a := send(t, log, k); a.Error != "" {
			t.Errorf("%s while another sender floods: %s", k.subject, a.Error)
		}
	}
	if n := len(servicetest.All(t, log, events.Catalogue, events.DeadLetteredType)); n != 5 {
		t.Errorf("%d dead letters instead of 5", n)
	}
	counted := submissions(t, env.Metrics.(*prometheus.Registry))
	if got := counted["product refused"]; got != 5 {
		t.Errorf("%g dead letters are counted", got)
	}
	if got := counted["product over_quota"]; got != float64(over) {
		t.Errorf("%g messages over the quota are counted instead of %d", got, over)
	}
	if got := counted["product unrecorded"]; got != float64(60-over-5) {
		t.Errorf("%g refusals without a dead letter are counted instead of %d", got, 60-over-5)
	}
	if counted["trainer recorded"] != 1 || counted["operator recorded"] != 1 {
		t.Errorf("counted %v", counted)
	}
}

// TestInventedNames: a flood with a new run or feed in each message gets no more than what all
// strangers, or a role, have together.
func TestInventedNames(t *testing.T) {
	log := house(t)
	startIn(t, servicetest.Env(t, log), Quotas{DeadLettersPerDay: 2})
	for i := range 40 {
		for _, subject := range []string{"rondo.in.made%d.batch.trainer.consumed",
			"rondo.in._.weights.made%d.submitted", "rondo.in.r.batch.made%d.consumed", "rondo.in.made%d.nonsense"} {
			if a := send(t, log, submission{subject: fmt.Sprintf(subject, i), body: `{}`}); a.Error == "" {
				t.Fatal("garbage was taken in")
			}
		}
	}
	if n, want := len(servicetest.All(t, log, events.Catalogue, events.DeadLetteredType)),
		2*strangersShare+2; n != want {
		t.Errorf("%d dead letters instead of %d", n, want)
	}
}

// submissions reads the counter by "role outcome".
func submissions(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "rondo_intake_submissions_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			counted[labels["role"]+" "+labels["outcome"]] = m.GetCounter().GetValue()
		}
	}
	return counted
}
