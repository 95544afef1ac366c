package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/nats-io/nats.go"
)

// read parses an event of a data version and makes it new.
func read(t *testing.T, typ Type, ceType, payload string) (Event, error) {
	t.Helper()
	msg := Event{ID: "r/x", Run: "r", Type: typ, Entity: "x", Data: json.RawMessage(payload)}.Message()
	h := nats.Header(msg.Header)
	if ceType == "" {
		delete(h, headerType)
	} else {
		h[headerType] = []string{ceType}
	}
	e, err := Parse(msg.Subject, h, msg.Data)
	if err != nil {
		t.Fatal(err)
	}
	return e, e.Upcast()
}

func TestUpcast(t *testing.T) {
	const file = `{"ref":"runs/r/batches/x/1","sha256":"aa","size":3}`
	for _, c := range []struct {
		typ     Type
		ceType  string
		payload string
		want    string // of what is not as it was
	}{
		{BatchReadyType, "rondo.v1.batch.ready", `{"step":1,"groups":["g"],"rollouts":["g-0"],"file":` + file + `,"samples":1,"tokens":5,"reward_mean":0.5,"min_version":0,"staleness":1}`,
			`{"step":1,"groups":["g"],"rollouts":["g-0"],"files":[` + file + `],"samples":1,"tokens":5,"sampled":0,"reward_mean":0.5,"min_version":0,"staleness":1}`},
		{BatchReadyType, "", `{"step":2,"file":` + file + `}`,
			`{"step":2,"groups":null,"rollouts":null,"files":[` + file + `],"samples":0,"tokens":0,"sampled":0,"reward_mean":0,"min_version":0,"staleness":0}`},
		{BatchReadyType, "rondo.v1.batch.ready", `{"step":3, "files":[` + file + `]}`, ""}, // written before ce-type said so
		{BatchReadyType, "rondo.v2.batch.ready", `{"step":3,"file":` + file + `}`, ""},
		{GroupCompletedType, "rondo.v1.group.completed", `{"task":"t","estimator":"e","members":[{"rollout":"a","reward":1,"advantage":0.5},{"rollout":"b","failed":true,"reward":0,"advantage":0}],"mean":1}`,
			`{"task":"t","estimator":"e","members":[{"rollout":"a","reward":1,"shaped":1,"advantage":0.5},{"rollout":"b","failed":true,"reward":0,"shaped":0,"advantage":0}],"mean":1}`},
		{GroupCompletedType, "rondo.v1.group.completed", `{"members":[{"rollout":"a","reward":1,"shaped":0.25,"advantage":0.5}]}`, ""},
		{RolloutScoredType, "rondo.v1.rollout.scored", `{"reward":1}`, ""},
		{"rollout.teleported", "rondo.v7.rollout.teleported", `{"x":1}`, ""},
	} {
		e, err := read(t, c.typ, c.ceType, c.payload)
		want := c.want
		if want == "" {
			want = c.payload
		}
		if err != nil || string(e.Data) != want {
			t.Errorf("%s %s: %v\ngot  %s\nwant %s", c.ceType, c.payload, err, e.Data, want)
		}
		again := e
		if err := again.Upcast(); err != nil || !bytes.Equal(again.Data, e.Data) {
			t.Errorf("%s %s: the second time it becomes %s, %v", c.ceType, c.payload, again.Data, err)
		}
	}
	if _, err := read(t, BatchReadyType, "rondo.v99.batch.ready", `{}`); !errors.Is(err, ErrNewer) || errors.Is(err, ErrMalformed) {
		t.Errorf("an event of the future: %v", err)
	}
	if _, err := read(t, BatchReadyType, "rondo.v1.batch.ready", `{"file":7}`); !errors.Is(err, ErrMalformed) {
		t.Errorf("a file that is none: %v", err)
	}
}

// TestDataVersionIsWritten: an event that was read from a log in an older form is written as that, or as new when it was made new.
func TestDataVersionIsWritten(t *testing.T) {
	e := Event{ID: "r/x", Run: "r", Type: BatchReadyType, Entity: "x", Data: json.RawMessage(`{}`)}
	if got := e.Message().Header[headerType]; !reflect.DeepEqual(got, []string{"rondo.v2.batch.ready"}) {
		t.Errorf("a new event is written as %v", got)
	}
	msg := e.Message()
	h := nats.Header(msg.Header)
	h[headerType] = []string{"rondo.v1.batch.ready"}
	old, err := Parse(msg.Subject, h, msg.Data)
	if err != nil {
		t.Fatal(err)
	}
	if got := old.Message().Header[headerType]; !reflect.DeepEqual(got, []string{"rondo.v1.batch.ready"}) {
		t.Errorf("an old event is written as %v", got)
	}
	if err := old.Upcast(); err != nil {
		t.Fatal(err)
	}
	if got := old.Message().Header[headerType]; !reflect.DeepEqual(got, []string{"rondo.v2.batch.ready"}) {
		t.Errorf("an old event that was made new is written as %v", got)
	}
}

func FuzzUpcast(f *testing.F) {
	f.Add([]byte(`{"step":1,"file":{"ref":"x","sha256":"y","size":1}}`))
	f.Add([]byte(`{"members":[{"reward":1},{"failed":true}]}`))
	f.Add([]byte(`{"members":[null]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		for typ := range upcasters {
			e := Event{ID: "r/x", Run: "r", Type: typ, Entity: "x", Data: payload, version: 1}
			err := e.Upcast()
			if err != nil && !errors.Is(err, ErrMalformed) {
				t.Fatalf("%s: %v", typ, err)
			}
			if err == nil && !json.Valid(e.Data) {
				t.Fatalf("%s: %q becomes %q", typ, payload, e.Data)
			}
		}
	})
}
