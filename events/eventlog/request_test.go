package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-rl/rondo/events/embedded"
)

func TestAppended(t *testing.T) {
	for _, c := range []struct {
		answer string
		seq    uint64
		code   jetstream.ErrorCode
		bad    bool
	}{
		{answer: `{"stream":"RONDO_a", "seq":12}`, seq: 12},
		{answer: `{"stream":"RONDO_a","seq":12}`, seq: 12},
		{answer: `{"stream":"RONDO_a", "seq":12,"domain":"hub"}`, seq: 12},
		{answer: `{"seq":12, "stream":"RONDO_a"}`, seq: 12},
		{answer: `{"stream":"RONDO_a", "seq":18446744073709551615}`, seq: 1<<64 - 1},
		{answer: `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"RONDO_a","seq":0}`, code: 10071},
		{answer: `{"stream":"RONDO_a", "seq":0}`, bad: true},
		{answer: `{"stream":"RONDO_a", "seq":18446744073709551616}`, bad: true},
		{answer: `{"stream":"RONDO_a", "seq":12`, bad: true},
		{answer: `{"seq":12}`, bad: true},
		{answer: `{}`, bad: true},
		{answer: ``, bad: true},
		{answer: `+OK`, bad: true},
	} {
		seq, err := appended(&nats.Msg{Data: []byte(c.answer)})
		if seq != c.seq || apiCode(err) != c.code || (err != nil) != (c.bad || c.code != 0) {
			t.Errorf("%s: sequence %d, error %v", c.answer, seq, err)
		}
	}
	nobody := nats.NewMsg("x")
	nobody.Header.Set("Status", "503")
	if _, err := appended(nobody); !errors.Is(err, jetstream.ErrNoStreamResponse) {
		t.Errorf("error %v, want that no stream answers", err)
	}
}

// The short way of reading an answer finds what the long way finds.
func FuzzAppended(f *testing.F) {
	f.Add([]byte(`{"stream":"RONDO_a", "seq":12}`))
	f.Add([]byte(`{"stream":"a, \"seq\":1", "seq":2}`))
	f.Add([]byte(`{"stream":"a", "seq":1, "seq":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		seq, err := appended(&nats.Msg{Data: data})
		if err != nil {
			return
		}
		var long jetstream.PubAck
		if err := json.Unmarshal(data, &long); err != nil || long.Sequence != seq {
			t.Errorf("%q: sequence %d by the short way, %d by the long one (%v)", data, seq, long.Sequence, err)
		}
	})
}

func serve(t *testing.T) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir(), SyncInterval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func connect(t *testing.T, s *embedded.Server) *nats.Conn {
	t.Helper()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// echo answers requests on a subject with what they say.
func echo(t *testing.T, nc *nats.Conn, subject string, before func(*nats.Msg)) {
	t.Helper()
	_, err := nc.Subscribe(subject, func(m *nats.Msg) {
		before(m)
		if err := m.Respond(m.Data); err != nil {
			t.Error(err)
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRequestsGetTheirOwnAnswers(t *testing.T) {
	server := serve(t)
	echo(t, connect(t, server), "echo", func(*nats.Msg) {})
	a := newAnswers(connect(t, server))
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 100 {
				want := fmt.Sprintf("%d of %d", i, g)
				m, err := a.request(t.Context(), &nats.Msg{Subject: "echo", Data: []byte(want)})
				if err != nil || string(m.Data) != want {
					t.Errorf("asked %q and got %v, %v", want, m, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if len(a.waiting) != 0 {
		t.Errorf("%d requests are still waited for", len(a.waiting))
	}
}

// An answer that comes when nobody waits for it any more is nobody else's.
func TestLateAnswer(t *testing.T) {
	server := serve(t)
	arrived, answer := make(chan struct{}, 1), make(chan struct{})
	echo(t, connect(t, server), "late", func(*nats.Msg) {
		arrived <- struct{}{}
		<-answer
	})
	a := newAnswers(connect(t, server))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := a.request(ctx, &nats.Msg{Subject: "late", Data: []byte("first")}); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want canceled", err)
	}
	close(answer)
	for range 10 {
		m, err := a.request(t.Context(), &nats.Msg{Subject: "late", Data: []byte("second")})
		if err != nil || string(m.Data) != "second" {
			t.Fatalf("got %v, %v; want the second answer", m, err)
		}
		<-arrived
	}
	if len(a.waiting) != 0 {
		t.Errorf("%d requests are still waited for", len(a.waiting))
	}
}

func TestRequestWithoutResponder(t *testing.T) {
	a := newAnswers(connect(t, serve(t)))
	m, err := a.request(t.Context(), &nats.Msg{Subject: "nobody"}) // not the end of requestTimeout
	if err != nil || m.Header.Get("Status") != noResponders {
		t.Fatalf("got %v, %v; want the status of no responders", m, err)
	}
	a.nc.Close()
	if _, err := a.request(t.Context(), &nats.Msg{Subject: "nobody"}); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("error %v, want that the connection is closed", err)
	}
}
