package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events"
)

// How far a server's clock may be from this one's: deadlines and leases are compared across machines.
const (
	someSkew = 2 * time.Second
	muchSkew = 30 * time.Second
)

// leastPayload is what a message must be allowed to hold: a fact with its body, and its headers.
const leastPayload = 1 << 20

// tryNATS connects, and makes and deletes a stream as large as a run's.
func tryNATS(ctx context.Context, url string, access natsAccess, now func() time.Time) []finding {
	options, err := access.options()
	if err != nil {
		return []finding{trouble("nats", err, "")}
	}
	nc, err := nats.Connect(url, append(options, nats.Name("rondo doctor"), nats.Timeout(5*time.Second), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	if err != nil {
		return []finding{trouble("nats", fmt.Errorf("connect to %s: %w", redacted(url), withoutSecrets(url, err)), connectAdvice(err))}
	}
	defer nc.Close()
	findings := []finding{ok("nats", "%s answers, version %s", redacted(nc.ConnectedUrl()), nc.ConnectedServerVersion())}
	if most := nc.MaxPayload(); most < leastPayload {
		findings = append(findings, trouble("nats", fmt.Errorf("messages may have %d bytes", most), "set max_payload: 8MB, as deploy/nats.conf does"))
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return append(findings, trouble("jetstream", err, ""))
	}
	name := "rondo-doctor-" + rand.Text()
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage, MaxBytes: events.Streams[0].MaxBytes,
	})
	if err != nil {
		return append(findings, trouble("jetstream", fmt.Errorf("make a stream of %s, which each run needs: %w", byteCount(uint64(events.Streams[0].MaxBytes)), err), streamAdvice(err)))
	}
	defer js.DeleteStream(context.WithoutCancel(ctx), name)
	began := now()
	if _, err := js.Publish(ctx, name, []byte("doctor")); err != nil {
		return append(findings, trouble("jetstream", fmt.Errorf("append: %w", err), streamAdvice(err)))
	}
	took := now().Sub(began)
	findings = append(findings, ok("jetstream", "a run's stream can be made; an append took %s", took.Round(10*time.Microsecond)))
	m, err := s.GetMsg(ctx, 1)
	if err != nil {
		return append(findings, trouble("jetstream", fmt.Errorf("read: %w", err), ""))
	}
	return append(findings, compareClocks(began, m.Time, took))
}

// compareClocks compares when a message was sent by this clock and stored by the server's.
func compareClocks(sent, stored time.Time, took time.Duration) finding {
	skew := stored.Sub(sent)
	if skew > 0 {
		skew = max(0, skew-took)
	}
	if skew < 0 {
		skew = -skew
	}
	f := ok("clock", "within %s of the server's", max(skew, took).Round(time.Millisecond))
	if skew > someSkew {
		f.Level, f.Do = levelWarning, "set both clocks by NTP: deadlines of rollouts are compared across machines"
		f.Found = fmt.Sprintf("%s off the server's", skew.Round(time.Millisecond))
	}
	if skew > muchSkew {
		f.Level = levelTrouble
	}
	return f
}

func connectAdvice(err error) string {
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
		return "give --nats-creds a file that `rondo auth` has made for you, or the server's user and password in the URL, nats://user:password@host:4222, best by RONDO_NATS in the environment"
	}
	return "see that nats-server runs and listens there (deploy/nats.conf has its settings); without --nats each directory has a server of its own"
}

// noStorage are the server's codes for a stream that it has no storage for: in the account, on the server, in the cluster.
var noStorage = []jetstream.ErrorCode{10002, 10005, 10023, 10047}

func streamAdvice(err error) string {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, nats.ErrNoResponders):
		return "start the server with JetStream, as deploy/nats.conf does, or by the option -js"
	case errors.As(err, &api) && slices.Contains(noStorage, api.ErrorCode):
		return "raise max_file_store of the server: every open run reserves its stream's limit, whatever it uses; `rondo run delete` gives archived runs' back"
	case errors.Is(err, context.DeadlineExceeded):
		return "the server does not answer JetStream requests: in a cluster, see that a majority of its servers runs; with permissions, that this user may use $JS.API.>"
	}
	return ""
}
