package generator

import (
	"testing"

	"github.com/rondo-rl/rondo/inference/fleet"
)

// TestReportOfNobody: a generator whose runs have asked no server yet says so.
func TestReportOfNobody(t *testing.T) {
	servers, err := fleet.New(fleet.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if r := report(servers, "host", 64); r.Instance != "host" || r.Slots != 64 ||
		len(r.Servers) != 0 || r.Waiting != 0 {
		t.Errorf("said %+v", r)
	}
}
