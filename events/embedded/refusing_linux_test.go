package embedded_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events/embedded"
	"github.com/rondo-rl/rondo/tests/smalldisk"
)

// A disk that was full once leaves a stream that answers no append, whatever room there is later; a
// restart opens it again, with everything that was acknowledged, at the address that clients know.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for name, sync := range map[string]time.Duration{"always": 0, "100ms": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			dir := smalldisk.Mount(t, "8m")
			s, err := embedded.Start(embedded.Options{Dir: dir, Listen: "127.0.0.1:0", SyncInterval: sync})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Shutdown)
			inside, outside := connectBoth(t, s)
			if _, err := inside.CreateStream(t.Context(),
				jetstream.StreamConfig{Name: "LOG", Subjects: []string{"log.>"}, Discard: jetstream.DiscardNew,
					MaxBytes: 1 << 30}); err != nil {
				t.Fatal(err)
			}
			if refusing := s.Refusing(); len(refusing) > 0 || s.Room() != nil {
				t.Fatalf("refusing %v and room %v with an empty disk", refusing, s.Room())
			}
			acknowledged := uint64(0)
			for ; acknowledged < 10; acknowledged++ {
				if err := publish(t, inside, acknowledged, time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			free := smalldisk.Fill(t, dir)
			for len(s.Refusing()) == 0 {
				err := publish(t, inside, acknowledged, time.Second)
				// on a busy machine it may be there all the same
				if stream, lookErr := inside.Stream(t.Context(), "LOG"); err != nil && lookErr == nil {
					acknowledged = stream.CachedInfo().State.LastSeq
				} else if err == nil {
					acknowledged++
				}
			}
			if s.Room() == nil {
				t.Error("there is room on a full disk")
			}
			wantRefusal := func(when string) {
				t.Helper()
				if refusing := s.Refusing(); len(refusing) != 1 || refusing[0].Stream != "LOG" ||
					!strings.Contains(refusing[0].Reason, "no space left") {
					t.Errorf("%s: refusing %+v", when, refusing)
				}
			}
			wantRefusal("on a full disk")
			free()
			// as the server's own matter: when this fails, nats-server mends it by
			// itself, and Restart can go
			wantRefusal("with room again")
			if err := publish(t, inside, acknowledged, time.Second); err == nil {
				t.Error("nats-server goes on by itself: Restart can go")
			}
			if err := s.Room(); err != nil {
				t.Fatal(err)
			}
			if err := s.Restart(); err != nil {
				t.Fatal(err)
			}
			if refusing := s.Refusing(); len(refusing) > 0 {
				t.Errorf("after a restart: refusing %+v", refusing)
			}
			for _, js := range []jetstream.JetStream{inside, outside} {
				// an append that crossed the restart may have been written without an answer
				eventually(t, func() error {
					stream, err := js.Stream(t.Context(), "LOG")
					if err != nil {
						return err
					}
					last := stream.CachedInfo().State.LastSeq
					if last < acknowledged {
						t.Fatalf("%d of %d acknowledged messages are left", last, acknowledged)
					}
					return publish(t, js, last, time.Second)
				})
			}
		})
	}
}

func TestRestartAfterShutdown(t *testing.T) {
	t.Parallel()
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.Shutdown()
	if err := s.Restart(); !errors.Is(err, embedded.ErrClosed) {
		t.Errorf("a server that was shut down restarts: %v", err)
	}
	if refusing := s.Refusing(); len(refusing) != 1 {
		t.Errorf("a server that does not run refuses %+v", refusing)
	}
}

// connectBoth connects within the process and by the server's address.
func connectBoth(t *testing.T, s *embedded.Server) (inside, outside jetstream.JetStream) {
	t.Helper()
	within, err := s.Connect(nats.ReconnectWait(10 * time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(within.Close)
	over, err := nats.Connect(s.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(over.Close)
	if inside, err = jetstream.New(within); err == nil {
		outside, err = jetstream.New(over)
	}
	if err != nil {
		t.Fatal(err)
	}
	return inside, outside
}

// publish appends behind the last message.
func publish(t *testing.T, js jetstream.JetStream, last uint64, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := js.Publish(ctx, "log.entry", make([]byte, 512), jetstream.WithExpectLastSequence(last))
	return err
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
