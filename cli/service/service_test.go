package service

import (
	"io"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
)

// TestNames: a service is known by its name, which help shows, and by no other.
func TestNames(t *testing.T) {
	for name, want := range map[string]string{"deadletters": "--nats", "gravedigger": `invalid argument "gravedigger"`} {
		t.Run(name, func(t *testing.T) {
			cmd := New(&app.Global{})
			cmd.SetArgs([]string{name})
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
	if help := New(&app.Global{}).Long; !strings.Contains(help, "deadletters") {
		t.Errorf("help says %s", help)
	}
}
