package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-rl/rondo/events/runfile"
)

func example() Event {
	return Event{
		ID: "r/rollout.g000001-2/turn_sampled/4", Run: "r", Type: TurnSampledType,
		Entity: "g000001-2", Route: "pool-shell",
		Source: "generator", Time: time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.UTC), Prev: 41,
		TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Data: json.RawMessage(`{"turn":4}`),
	}
}

func TestRoundTrip(t *testing.T) {
	for name, change := range map[string]func(*Event){
		"a routed event":          func(*Event) {},
		"without route":           func(e *Event) { e.Type, e.Route = RolloutStartedType, "" },
		"a decided fact":          func(e *Event) { e.AsOf, e.DecidedAt = 40, e.Time.Add(-time.Nanosecond) },
		"decided on an empty log": func(e *Event) { e.AsOf, e.DecidedAt = 0, e.Time },
		"the first link":          func(e *Event) { e.Prev = 0 },
		"without a trace":         func(e *Event) { e.TraceParent = "" },
		"the largest sequence":    func(e *Event) { e.Prev = 1<<64 - 1 },
		"the catalogue":           func(e *Event) { e.Run, e.Type, e.Route = Catalogue, WeightsPublishedType, "" },
		"a type of the future":    func(e *Event) { e.Type, e.Route = "rollout.teleported", "" },
		"an id with spaces":       func(e *Event) { e.ID = "r/batch.trainer/consumed/run 7: step=3" },
		"no body":                 func(e *Event) { e.Data = nil },
	} {
		t.Run(name, func(t *testing.T) {
			want := example()
			change(&want)
			msg := want.Message()
			// Over the wire: the header's case must survive it.
			wire := nats.NewMsg(msg.Subject)
			wire.Header = msg.Header
			got, err := Parse(wire.Subject, overTheWire(t, wire.Header), msg.Data)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// overTheWire encodes headers as NATS does, and reads them back.
func overTheWire(t *testing.T, h nats.Header) nats.Header {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("NATS/1.0\r\n")
	for name, values := range h {
		for _, v := range values {
			b.WriteString(name + ": " + v + "\r\n")
		}
	}
	b.WriteString("\r\n")
	read, err := nats.DecodeHeadersMsg(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestCloudEventsAttributes(t *testing.T) {
	e := example()
	h := e.Message().Header
	for name, want := range map[string]string{
		"ce-specversion": "1.0", "ce-id": e.ID, "ce-type": "rondo.v1.rollout.turn_sampled", "ce-source": "generator",
		"ce-time": "2026-05-01T12:00:00.123456789Z", "ce-prev": "41", "traceparent": e.TraceParent,
	} {
		if got := h[name]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"Nats-Msg-Id", "ce-asof", "ce-decidedat", HeaderDataRef} {
		if got := h[name]; len(got) != 0 {
			t.Errorf("%s is %q, want none", name, got)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(subject *string, h nats.Header)
		want   error
	}{
		"another subject": {func(s *string, _ nats.Header) { *s = "orders.new" }, ErrSubject},
		"too few tokens":  {func(s *string, _ nats.Header) { *s = "rondo.v1.r.rollout.g000001-2" }, ErrSubject},
		"too many tokens": {func(s *string, _ nats.Header) { *s += ".more" }, ErrSubject},
		"another version": {func(s *string, _ nats.Header) { *s = strings.Replace(*s, "v1", "v2", 1) }, ErrSubject},
		"no headers":      {func(_ *string, h nats.Header) { clear(h) }, ErrMalformed},
		"no id":           {func(_ *string, h nats.Header) { delete(h, "ce-id") }, ErrMalformed},
		"two ids":         {func(_ *string, h nats.Header) { h["ce-id"] = []string{"a", "b"} }, ErrMalformed},
		"no time":         {func(_ *string, h nats.Header) { delete(h, "ce-time") }, ErrMalformed},
		"a strange time":  {func(_ *string, h nats.Header) { h["ce-time"] = []string{"yesterday"} }, ErrMalformed},
		"the year 10000": {func(_ *string, h nats.Header) { h["ce-time"] = []string{"9999-12-31T23:59:59-01:00"} },
			ErrMalformed},
		"no prev":         {func(_ *string, h nats.Header) { delete(h, "ce-prev") }, ErrMalformed},
		"a negative prev": {func(_ *string, h nats.Header) { h["ce-prev"] = []string{"-1"} }, ErrMalformed},
		"a strange decision": {func(_ *string,
			h nats.Header) {
			h["ce-decidedat"] = []string{"soon"}
			h["ce-asof"] = []string{"1"}
		}, ErrMalformed},
		"decided on nothing": {func(_ *string, h nats.Header) { h["ce-decidedat"] = h["ce-time"] }, ErrMalformed},
		"upper-case headers": {func(_ *string, h nats.Header) { h["Ce-Id"] = h["ce-id"]; delete(h, "ce-id") },
			ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			msg := example().Message()
			c.change(&msg.Subject, msg.Header)
			if e, err := Parse(msg.Subject, msg.Header, msg.Data); !errors.Is(err, c.want) {
				t.Errorf("got %+v, %v; want %v", e, err, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	e := example()
	e.AsOf, e.DecidedAt = 3, e.Time
	msg := e.Message()
	f.Add(msg.Subject, e.ID, msg.Header["ce-time"][0], "41", msg.Header["ce-decidedat"][0], "3", []byte("{}"))
	f.Add("rondo.v1.....", "", "", "", "", "", []byte(nil))
	f.Add("rondo.v1.r.rollout.x.started", "id", "2026-05-01T12:00:00+05:30", "0", "", "9", []byte("null"))
	f.Add("rondo.v1.r.rollout.x.started", "id", "9999-12-31T23:59:59-01:00", "0",
		"0000-01-01T00:00:00+01:00", "9", []byte("null"))
	f.Fuzz(func(t *testing.T, subject, id, at, prev, decided, asOf string, body []byte) {
		h := nats.Header{"ce-id": {id}, "ce-time": {at}, "ce-prev": {prev},
			"ce-decidedat": {decided}, "ce-asof": {asOf}}
		e, err := Parse(subject, h, body)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrSubject) {
				t.Errorf("an error of no kind: %v", err)
			}
			return
		}
		// What parses is an event whose message says the same.
		msg := e.Message()
		again, err := Parse(msg.Subject, msg.Header, msg.Data)
		if err != nil {
			t.Fatalf("%+v was read and cannot be read again: %v", e, err)
		}
		if msg.Subject != subject || again.ID != e.ID || again.Prev != e.Prev || again.AsOf != e.AsOf ||
			!again.Time.Equal(e.Time) || !again.DecidedAt.Equal(e.DecidedAt) || !bytes.Equal(again.Data, e.Data) {
			t.Errorf("read %+v, and then %+v", e, again)
		}
	})
}

func TestNew(t *testing.T) {
	e, err := New("r", BatchReadyType, "trainer", Ordinal(int64(7)), BatchReady{Step: 7})
	if err != nil {
		t.Fatal(err)
	}
	if e.ID != "r/batch.trainer/ready/7" || e.Subject() != "rondo.v1.r.batch.trainer.ready" ||
		e.Chain() != "rondo.v1.r.batch.trainer.>" {
		t.Errorf("id %s, subject %s, chain %s", e.ID, e.Subject(), e.Chain())
	}
	if b, err := Data[BatchReady](e); err != nil || b.Step != 7 {
		t.Errorf("data %+v, %v", b, err)
	}
	if _, err := New("r", BatchReadyType, "trainer", "0", func() {}); err == nil ||
		!strings.Contains(err.Error(), "encode batch.ready of trainer") {
		t.Errorf("a payload that is none: %v", err)
	}
	e.Data = json.RawMessage(`{"step":"seven"}`)
	if _, err := Data[BatchReady](e); err == nil || !strings.Contains(err.Error(), e.ID) {
		t.Errorf("a payload of another shape: %v", err)
	}
}

func TestNames(t *testing.T) {
	if g := GroupID(123); g != "g000123" || RolloutID(g, 4) != "g000123-4" || GroupOf("g000123-4") != g {
		t.Errorf("group %s, rollout %s, of group %s", g, RolloutID(g, 4), GroupOf("g000123-4"))
	}
	if g := GroupID(12345678); g != "g12345678" || GroupOf(RolloutID(g, 0)) != g {
		t.Errorf("a group of more digits: %s", g)
	}
	if !(StepKey(9) < StepKey(10) && StepKey(999_999) < StepKey(1_000_000)) {
		t.Error("keys of steps do not sort as steps do")
	}
	for s, want := range map[string]bool{"a": true, "A-b_9": true, "_": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "a.b": false, "a b": false, "*": false, ">": false, "ä": false,
		"a\n": false, "a/b": false} {
		if runfile.ValidToken(s) != want {
			t.Errorf("token %q: %v", s, !want)
		}
	}
	for s, want := range map[string]bool{"run-1": true, "in": true, "INN": true, "_": false, "IN": false, "DEAD": false,
		"": false, "a.b": false} {
		if ValidRun(s) != want {
			t.Errorf("run %q: %v", s, !want)
		}
	}
}

func TestIntakeSubject(t *testing.T) {
	for _, typ := range Types() {
		s := IntakeSubject("my-run", typ, "g000001-2")
		run, got, entity, err := ParseIntakeSubject(s)
		if err != nil || run != "my-run" || got != typ || entity != "g000001-2" {
			t.Errorf("%s is read as %s %s %s, %v", s, run, got, entity, err)
		}
	}
	for _, s := range []string{"", "rondo.in", "rondo.in.r.run.r", "rondo.in.r.run.r.opened.more",
		"rondo.v1.r.run.r.opened", "rondo.in.r.run..opened", "rondo.in.r.run.*.opened", "rondo.in.r r.run.r.opened"} {
		if run, typ, entity, err := ParseIntakeSubject(s); err == nil {
			t.Errorf("%q is read as %s %s %s", s, run, typ, entity)
		}
	}
}

func FuzzParseIntakeSubject(f *testing.F) {
	f.Add("rondo.in.r.run.r.opened")
	f.Add("rondo.in.....")
	f.Fuzz(func(t *testing.T, s string) {
		run, typ, entity, err := ParseIntakeSubject(s)
		if err == nil && IntakeSubject(run, typ, entity) != s {
			t.Errorf("%q is read as %s %s %s", s, run, typ, entity)
		}
	})
}
