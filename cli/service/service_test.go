package service

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
)

// TestNames: a service is known by its name, which help shows, and by no other.
func TestNames(t *testing.T) {
	for name, want := range map[string]string{"deadletters": "--nats",
		"gravedigger": `invalid argument "gravedigger"`} {
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

// TestPlacePolicy: the generator asks the built-in policy where that listens, also where it
// listens at every address.
func TestPlacePolicy(t *testing.T) {
	for _, listen := range []string{AnyPort, "0.0.0.0:0", ":0"} {
		var s Settings
		if err := s.PlacePolicy(listen); err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(s.PolicyListen)
		if err != nil || port == "0" || s.Builtin != "http://127.0.0.1:"+port+"/v1" {
			t.Errorf("%s: it listens at %s and is asked at %s: %v", listen, s.PolicyListen, s.Builtin, err)
		}
	}
}
