package sandbox_test

import (
	"os"
	"testing"
)

// actors are what this test program does instead of testing when it is started with
// RONDO_TEST_ACTOR: inside a sandbox as the program that tries to get out, outside as
// an owner that gets killed.
var actors = map[string]func(){}

func TestMain(m *testing.M) {
	if actor := actors[os.Getenv("RONDO_TEST_ACTOR")]; actor != nil {
		actor()
		os.Exit(0)
	}
	os.Exit(m.Run())
}
