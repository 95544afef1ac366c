package plane

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events/embedded"
)

// TestLostConnection: a command that ends by itself does not wait for ever for a server that is gone, and one that follows does.
func TestLostConnection(t *testing.T) {
	before := lostPatience
	lostPatience = 50 * time.Millisecond
	t.Cleanup(func() { lostPatience = before })
	for name, follows := range map[string]bool{"one look": false, "follows": true} {
		t.Run(name, func(t *testing.T) {
			server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Token: newToken()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Shutdown)
			ctx, cancel := context.WithCancelCause(t.Context())
			g := &app.Global{Follows: follows, Cancel: cancel}
			conn, err := nats.Connect(server.URL(), append(watchConnection(g, "the server"), nats.MaxReconnects(-1))...)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			lost := conn.StatusChanged(nats.RECONNECTING)
			server.Shutdown()
			if !follows {
				<-ctx.Done()
				if err := LostOr(ctx, ctx.Err()); !errors.Is(err, errLost) {
					t.Errorf("the command ends with %v", err)
				}
				return
			}
			<-lost
			select {
			case <-ctx.Done():
				t.Errorf("the command ends with %v", context.Cause(ctx))
			case <-time.After(10 * lostPatience):
			}
		})
	}
}
