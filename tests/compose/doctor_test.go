package compose_test

import (
	"encoding/json"
	"strings"

	"github.com/rondo-rl/rondo/events/topology"
)

// doctor: in the containers `rondo doctor` finds the log, the store and the keys that the
// services use, and no trouble.
func (s *stack) doctor() {
	s.t.Helper()
	out, err := s.rondo("doctor", "--json")
	s.healthy("the operator's container", out, err, "nats", "jetstream", "store", "clock")
	for service, checks := range map[string][]string{
		topology.Generator:  {"nats", "store"},
		topology.ToolRunner: {"nats", "store"},
	} {
		out, err := output(s.command("exec", "--no-TTY", service, "rondo", "doctor", "--json"))
		s.healthy("the container of "+service, out, err, checks...)
		// Limits by control groups depend on the host, so the sandbox may come with a warning.
		if service == topology.ToolRunner && !strings.Contains(out, "a program ran: isolation namespaces") {
			s.t.Errorf("rondo doctor in the container of %s ran no sandbox:\n%s", service, out)
		}
	}
}

// healthy demands that a doctor found these checks in order, and no trouble in others.
func (s *stack) healthy(where, out string, err error, checks ...string) {
	s.t.Helper()
	var findings []struct{ Check, Level, Found string }
	if err != nil || json.Unmarshal([]byte(out), &findings) != nil {
		s.t.Errorf("rondo doctor in %s: %v\n%s", where, err, out)
		return
	}
	levels := map[string]string{}
	for _, f := range findings {
		levels[f.Check] = f.Level
	}
	for _, check := range checks {
		if levels[check] != "ok" {
			s.t.Errorf("rondo doctor in %s: %s is %q\n%s", where, check, levels[check], out)
		}
	}
}
