package scorer

import (
	"os"
	"testing"

	"github.com/rondo-rl/rondo/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	os.Exit(m.Run())
}
