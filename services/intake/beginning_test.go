package intake

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestOpeningNamesThePublishedVersion: the intake looks up which version the run's policy has, also
// where a later version comes between the opening and its repetition; nobody else may say it.
func TestOpeningNamesThePublishedVersion(t *testing.T) {
	log := house(t)
	publish := func(version int64) {
		policy := servicetest.Config("a").Policy
		servicetest.Append(t, log, servicetest.Event(t, events.Catalogue, events.WeightsPublishedType, policy,
			events.Ordinal(version), events.WeightsPublished{Policy: policy, Version: version}))
	}
	start(t, log)
	opening := submission{subject: "rondo.in.new.run.new.opened", body: openedBody(t, func(*runfile.RunConfig) {})}
	for version := int64(6); version <= 7; version++ { // the second time the run is there already
		publish(version)
		if answer := send(t, log, opening); answer.Error != "" {
			t.Fatal(answer.Error)
		}
		for _, run := range []string{"new", events.Catalogue} {
			if opened := servicetest.WaitData[events.RunOpened](t, log, run, events.RunOpenedType,
				"new"); opened.PolicyVersion != 6 {
				t.Errorf("when version %d is published, %s says %d", version, run, opened.PolicyVersion)
			}
		}
	}
	stated := submission{subject: "rondo.in.other.run.other.opened",
		body: strings.Replace(openedBody(t, func(*runfile.RunConfig) {}), `{`, `{"policy_version":3,`, 1)}
	if answer := send(t, log, stated); !strings.Contains(answer.Error, "leave policy_version out") {
		t.Errorf("an outsider says the version: %q", answer.Error)
	}
}
