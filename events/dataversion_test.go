package events

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestDataVersions: a known type in a later data version is refused, and an unknown type in any
// version is read, so that a reader may skip it. Either is written again as it was.
func TestDataVersions(t *testing.T) {
	for _, c := range []struct {
		typ    Type
		ceType string // "" has none
		newer  bool
	}{
		{BatchReadyType, "rondo.v1.batch.ready", false},
		{BatchReadyType, "", false},
		{BatchReadyType, "rondo.v2.batch.ready", true},
		{BatchReadyType, "rondo.v99.batch.ready", true},
		{BatchReadyType, "something.else", false},
		{"rollout.teleported", "rondo.v1.rollout.teleported", false},
		{"rollout.teleported", "rondo.v7.rollout.teleported", false},
	} {
		msg := Event{ID: "r/x", Run: "r", Type: c.typ, Entity: "x", Data: json.RawMessage(`{"x":1}`)}.Message()
		if want := []string{"rondo.v1." + string(c.typ)}; !reflect.DeepEqual(msg.Header[headerType], want) {
			t.Errorf("a new %s is written as %v", c.typ, msg.Header[headerType])
		}
		h := nats.Header(msg.Header)
		h[headerType] = []string{c.ceType}
		e, err := Parse(msg.Subject, h, msg.Data)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.CheckVersion(); errors.Is(err, ErrNewer) != c.newer || (err != nil) != c.newer ||
			errors.Is(err, ErrMalformed) {
			t.Errorf("%s %q: %v", c.typ, c.ceType, err)
		}
		if got := e.Message().Header[headerType][0]; versionOf(got) != versionOf(c.ceType) {
			t.Errorf("%s %q is written again as %q", c.typ, c.ceType, got)
		}
	}
}
