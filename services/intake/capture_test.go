package intake

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// captured states one fact of a rollout's capture.
func captured(o outsider, t events.Type, rollout string, data any) events.IntakeAnswer {
	o.t.Helper()
	body, err := json.Marshal(data)
	if err != nil {
		o.t.Fatal(err)
	}
	return send(o.t, o.log, submission{subject: events.IntakeSubject(o.run, t, events.CaptureEntity(rollout)),
		body: string(body)})
}

func call(rollout, id string, sampled int) events.CaptureRecorded {
	ids, logs := make([]string, sampled), make([]string, sampled)
	for i := range ids {
		ids[i], logs[i] = fmt.Sprint(i), "-0.1"
	}
	entry := fmt.Sprintf(`{"rollout_id":%q,"model_call_id":%q,"prompt_token_ids":[1,2],"generation_token_ids":[%s],"generation_log_probs":[%s],"more":{"ref":"x"}}`,
		rollout, id, strings.Join(ids, ","), strings.Join(logs, ","))
	return events.CaptureRecorded{Rollout: rollout, Call: id, Entry: entry}
}

func captureHouse(t *testing.T) outsider {
	t.Helper()
	log := natstest.Log(t)
	cfg := servicetest.Config("a")
	servicetest.OpenRun(t, log, "own", cfg)
	cfg.External = true
	servicetest.OpenRun(t, log, "gym", cfg)
	servicetest.OpenRun(t, log, "over", cfg)
	servicetest.CloseRun(t, log, "over")
	start(t, log)
	return outsider{t, log, "gym"}
}

// TestCaptures: a call has one record, and a capture ends where its reader saw
// all of it, and not before.
func TestCaptures(t *testing.T) {
	o := captureHouse(t)
	const rollout = "task.7-a1" // no token
	want := func(a events.IntakeAnswer, refused string) uint64 {
		t.Helper()
		if refused == "" && a.Error != "" || !strings.Contains(a.Error, refused) {
			t.Fatalf("answer %+v, want %q", a, refused)
		}
		return a.Sequence
	}
	retire := func(last uint64) events.IntakeAnswer {
		return captured(o, events.CaptureRetiredType, rollout, events.CaptureRetired{Rollout: rollout, Last: last})
	}
	want(retire(1), "is not its last event") // nothing is captured
	want(captured(o, events.CaptureBegunType, rollout, events.CaptureBegun{Rollout: rollout, Call: "c1"}), "")
	first := want(captured(o, events.CaptureRecordedType, rollout, call(rollout, "c1", 3)), "")
	if again := want(captured(o, events.CaptureRecordedType, rollout, call(rollout, "c1", 3)), ""); again != first {
		t.Errorf("the same record is at %d and at %d", first, again)
	}
	want(captured(o, events.CaptureRecordedType, rollout, call(rollout, "c1", 4)), "already recorded at sequence")
	lost := want(captured(o, events.CaptureIncompleteType, rollout, events.CaptureIncomplete{Rollout: rollout}), "")
	if next := want(captured(o, events.CaptureIncompleteType, rollout, events.CaptureIncomplete{Rollout: rollout}),
		""); next == lost {
		t.Error("a second loss is no fact of its own")
	} else {
		want(retire(first), "is not its last event")
		want(retire(next), "")
		want(retire(next), "") // repeated, as its answer may be lost
		want(retire(first), "other content")
	}
	want(captured(o, events.CaptureRecordedType, rollout, call(rollout, "c2", 1)), "is retired")
	want(captured(o, events.CaptureIncompleteType, rollout, events.CaptureIncomplete{Rollout: rollout}), "is retired")
	want(captured(o, events.CaptureRecordedType, rollout, call(rollout, "c1", 3)), "") // what is recorded stays so
	if n := len(servicetest.All(t, o.log, "gym", events.CaptureRecordedType)); n != 1 {
		t.Errorf("%d records are on the log", n)
	}
}

// TestCapturesRefused: what cannot be trained on, or is of another rollout, changes nothing.
func TestCapturesRefused(t *testing.T) {
	o := captureHouse(t)
	edited := func(old, by string) events.CaptureRecorded {
		recorded := call("r1", "c1", 2)
		recorded.Entry = strings.Replace(recorded.Entry, old, by, 1)
		return recorded
	}
	uneven := edited("[-0.1,-0.1]", "[-0.1]")
	other := call("r1", "c1", 2)
	other.Call = "c2"
	for name, c := range map[string]struct {
		run    string
		entity string
		data   events.CaptureRecorded
		want   string
	}{
		"no external run":    {"own", "r1", call("r1", "c1", 1), "external: true"},
		"a closed run":       {"over", "r1", call("r1", "c1", 1), "is closed"},
		"no run":             {"nobody", "r1", call("r1", "c1", 1), "there is no run"},
		"another capture":    {"gym", "r2", call("r1", "c1", 1), "the capture of rollout"},
		"a digest as a name": {"gym", "sha256-1", call("sha256-1", "c1", 1), "the capture of rollout"},
		"uneven columns":     {"gym", "r1", uneven, "2 token ids, 1 log-probabilities"},
		"another call":       {"gym", "r1", other, "it is of call"},
		"no JSON": {"gym", "r1", events.CaptureRecorded{Rollout: "r1", Call: "c1", Entry: "tokens"},
			"not the JSON"},
		"a token beyond": {"gym", "r1", events.CaptureRecorded{Rollout: "r1", Call: "c1",
			Entry: `{"rollout_id":"r1","model_call_id":"c1","generation_token_ids":[4294967296]}`},
			"token 0 has the id 4294967296"},
		"no token":            {"gym", "r1", edited("[0,1]", "[0,null]"), "token 1 has the id null"},
		"half a token":        {"gym", "r1", edited("[1,2]", "[1,2.5]"), "prompt_token_ids: token 1 has the id 2.5"},
		"a negative token":    {"gym", "r1", edited("[1,2]", "[1,-2]"), "prompt_token_ids: token 1 has the id -2"},
		"no log-probability":  {"gym", "r1", edited("[-0.1,-0.1]", "[-0.1,null]"), "token 1 has null"},
		"a word for none":     {"gym", "r1", edited("[-0.1,-0.1]", "[-9999.0,-0.1]"), "token 0 has -9999"},
		"a likely token":      {"gym", "r1", edited("[-0.1,-0.1]", "[-0.1,0.5]"), "token 1 has 0.5"},
		"a call with a space": {"gym", "r1", call("r1", "c 1", 1), "call"},
	} {
		at := o
		at.run = c.run
		body, err := json.Marshal(c.data)
		if err != nil {
			t.Fatal(err)
		}
		a := send(t, at.log, submission{subject: events.IntakeSubject(at.run, events.CaptureRecordedType, c.entity),
			body: string(body)})
		if !strings.Contains(a.Error, c.want) || a.Error == "" {
			t.Errorf("%s: %+v, want %q", name, a, c.want)
		}
	}
	if n := len(servicetest.All(t, o.log, "gym", events.CaptureRecordedType)); n != 0 {
		t.Errorf("%d records are on the log", n)
	}
	if ids, err := tokensOf([]byte("[" + strings.Repeat(",", maxCaptured) + "]")); err == nil ||
		!strings.Contains(err.Error(), "more than") {
		t.Errorf("a list is read before its length is known: %d, %v", len(ids), err)
	}
}

// TestCapturesRace: calls that are recorded at once make one chain, and an end that races with them
// leaves none of them out.
func TestCapturesRace(t *testing.T) {
	o := captureHouse(t)
	const calls = 8
	last := captured(o, events.CaptureRecordedType, "r", call("r", "first", 1)).Sequence
	answers := make([]events.IntakeAnswer, calls+1)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() { answers[i] = captured(o, events.CaptureRecordedType, "r", call("r", fmt.Sprint("c", i), 1)) })
	}
	wg.Go(func() {
		answers[calls] = captured(o, events.CaptureRetiredType, "r", events.CaptureRetired{Rollout: "r", Last: last})
	})
	wg.Wait()
	recorded := 0
	for _, a := range answers[:calls] {
		if a.Error == "" {
			recorded++
		}
	}
	if retired := answers[calls].Error == ""; retired != (recorded == 0) {
		t.Errorf("retired: %v, and %d records came behind what its reader saw: %+v", retired, recorded, answers)
	}
	if n := len(servicetest.All(t, o.log, "gym", events.CaptureRecordedType)); n != recorded+1 {
		t.Errorf("%d records are on the log, %d were answered", n, recorded+1)
	}
}
