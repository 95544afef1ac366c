package natstest

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats-server/v2/server/ats"
)

// virtualEnv names the test that this process was started for.
const virtualEnv = "RONDO_TEST_VIRTUAL_TIME"

// detectorFailed is what the race detector writes when it finds its own books in disorder, once in
// many hours. A race is reported otherwise.
var detectorFailed = []byte("ThreadSanitizer: CHECK failed")

// Virtual runs a test in virtual time (testing/synctest), with servers and connections that it
// makes within: hours of waiting take milliseconds. A connection has to be over an embedded
// server's in-process line.
//
// The NATS client keeps timers in a pool, and a timer must not leave its bubble; so the test runs
// in a process of its own.
func Virtual(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(virtualEnv) == t.Name() {
		ats.Register() // the server's coarse clock ticks outside of the bubble
		defer ats.Unregister()
		synctest.Test(t, test)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(t.Name(), "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	start := func() ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), self, "-test.run="+strings.Join(parts, "/"), "-test.count=1",
			"-test.v", "-test.timeout=12m")
		cmd.Env = append(os.Environ(), virtualEnv+"="+t.Name())
		return cmd.CombinedOutput()
	}
	out, err := start()
	if err != nil && bytes.Contains(out, detectorFailed) {
		t.Logf("once more, as the race detector itself failed:\n%s", out)
		out, err = start()
	}
	if err != nil {
		t.Fatalf("in virtual time: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("in virtual time the test did not run:\n%s", out)
	}
}
