package up

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
)

// TestPolicyListen: the address that a user names for the built-in policy is the one that is taken.
func TestPolicyListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute) // it would go on
	defer stop()
	root := app.New(New)
	root.SetArgs([]string{"up", "--dir", t.TempDir(), "--policy-listen", taken.Addr().String()})
	if err := root.ExecuteContext(ctx); err == nil ||
		!strings.Contains(err.Error(), "--policy-listen: listen tcp "+taken.Addr().String()) {
		t.Errorf("with an address that is in use: %v", err)
	}
}
