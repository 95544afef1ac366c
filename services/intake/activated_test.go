package intake

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestActivatedVersionsWerePublished: versions may have gaps, and belong to one policy.
func TestActivatedVersionsWerePublished(t *testing.T) {
	log := house(t)
	publish := func(policy string, version int64) {
		servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType, policy,
			events.Ordinal(version), events.WeightsPublished{Policy: policy, Version: version}))
	}
	publish("small", 2)
	publish("small", 5)
	publish("other", 7)
	start(t, log)
	activate := func(policy string, version int64) string {
		return send(t, log, submission{subject: events.IntakeSubject(events.Catalogue, events.WeightsActivatedType,
			policy), body: fmt.Sprintf(`{"version":%d,"replica":"x"}`, version)}).Error
	}
	for _, c := range []struct {
		policy  string
		version int64
		refused bool
	}{
		{"small", 0, false}, {"small", 2, false}, {"small", 5, false}, {"small", 3, true}, {"small", 6, true},
		{"small", 7, true}, {"other", 7, false},
		{"new", 0, false}, {"new", 1, true}, {"small", 2, false},
	} {
		answer := activate(c.policy, c.version)
		if refused := strings.Contains(answer, "was never published"); refused != c.refused ||
			!refused && answer != "" {
			t.Errorf("version %d of %s: %q", c.version, c.policy, answer)
		}
	}
	publish("small", 6)
	if answer := activate("small", 6); answer != "" {
		t.Errorf("after it was published: %s", answer)
	}
}

// TestPromotedVersionsWerePublished: what is promoted was published, and a share says
// what the other rollouts get.
func TestPromotedVersionsWerePublished(t *testing.T) {
	log := house(t)
	for _, version := range []int64{2, 5} {
		servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType,
			"small", events.Ordinal(version), events.WeightsPublished{Policy: "small", Version: version}))
	}
	start(t, log)
	for body, refused := range map[string]string{
		`{"version":5}`:                            "",
		`{"version":0}`:                            "",
		`{"version":5,"share":0.1,"before":2}`:     "",
		`{"version":2,"before":5,"rolled_back":5}`: "",
		`{"version":3}`:                            "version 3 of policy small was never published",
		`{"version":5,"share":0.1,"before":3}`:     "version 3 of policy small was never published",
		`{"version":5,"share":0.1}`:                "with the version that the other rollouts get",
		`{"version":5,"share":1,"before":2}`:       "below 1",
		`{"version":5,"before":5}`:                 "cannot be the one before itself",
		`{"version":0,"share":0.1}`:                "leave out share",
		`{"version":5,"share":1.5,"before":2}`:     "share",
		`{"version":5,"share":-0.5,"before":2}`:    "share",
		`{"version":-5}`:                           "version",
	} {
		answer := send(t, log, submission{subject: events.IntakeSubject(events.Catalogue, events.WeightsPromotedType,
			"small"), body: body}).Error
		if refused == "" && answer != "" || refused != "" && !strings.Contains(answer, refused) {
			t.Errorf("%s: %q, want %q", body, answer, refused)
		}
	}
}

// TestSubmittedWeightsName: weights are those of a run that was opened, and of steps
// that its feeds have reached.
func TestSubmittedWeightsName(t *testing.T) {
	log := house(t)
	start(t, log)
	digest := strings.Repeat("ab", 32)
	for body, refused := range map[string]string{
		`"run":"r","through_step":2`:                        "",
		`"run":"old","through_step":0`:                      "",
		`"run":"r","through_step":3`:                        "the feeds of run r have only reached step 2",
		`"run":"nobody","through_step":0`:                   `there is no run "nobody"`,
		`"run":"r","through_step":2,"allow":["not_finite"]`: "",
		`"run":"r","through_step":2,"allow":["nan"]`:        "allow.0: value must be one of",
	} {
		text := fmt.Sprintf(`{"version":1,%s,"files":[{"name":"model.safetensors","blob":{"ref":"weights/small/files/%s","sha256":"%s","size":1}}]}`,
			body, digest, digest)
		answer := send(t, log, submission{subject: events.IntakeSubject(events.Catalogue, events.WeightsSubmittedType,
			"small"), body: text}).Error
		if refused == "" && answer != "" || !strings.Contains(answer, refused) {
			t.Errorf("%s: %q, want %q", body, answer, refused)
		}
	}
}
