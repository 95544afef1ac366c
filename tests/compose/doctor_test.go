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
	s.healthy("the operator's container", func() (string, error) { return s.rondo("doctor", "--json") },
		"nats", "jetstream", "store", "clock")
	for service, checks := range map[string][]string{
		topology.Generator:  {"nats", "store"},
		topology.ToolRunner: {"nats", "store"},
	} {
		out := s.healthy("the container of "+service, func() (string, error) {
			return output(s.command("exec", "--no-TTY", service, "rondo", "doctor", "--json"))
		}, checks...)
		// Limits by control groups depend on the host, so the sandbox may come with a warning.
		if service == topology.ToolRunner && !strings.Contains(out, "a program ran: isolation namespaces") {
			s.t.Errorf("rondo doctor in the container of %s ran no sandbox:\n%s", service, out)
		}
	}
}

// healthy demands that a doctor finds these checks in order, and no trouble in others. One that had
// no processor, and says so, is asked again.
func (s *stack) healthy(where string, ask func() (string, error), checks ...string) (out string) {
	s.t.Helper()
	var err error
	s.eventually(patience, "rondo doctor in "+where+" has a processor", func() bool {
		out, err = ask()
		return err == nil || !strings.Contains(err.Error(), "machine_starved")
	})
	var findings []struct{ Check, Level, Found string }
	if err != nil || json.Unmarshal([]byte(out), &findings) != nil {
		s.t.Errorf("rondo doctor in %s: %v\n%s", where, err, out)
		return out
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
	return out
}
