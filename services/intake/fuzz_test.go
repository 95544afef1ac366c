package intake

import (
	"bytes"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/schemas"
)

// FuzzBody: whatever the bytes, a body is refused with a reason, or read as a payload that its
// type's schema takes when it is written again, and that is read as the same.
func FuzzBody(f *testing.F) {
	outside := outsideTypes()
	for i := range outside {
		for _, body := range []string{
			`{}`, `{"step": 1}`, `{"step": 1e400}`, `{"to_step": -1}`,
			`{"reward": 1, "exit_code": 0, "task_digest": "", "duration_ms": 0.5, "trajectory": {"ref": "", "sha256": "", "size": 0}}`,
			`{"task": "t", "size": 2}`, `{"text": "\u0000\ud800"}`, `{"reason": "r", "reason": null}`,
			`{"turn": 0, "count": 1, "task": "t"}`, `[[[[`, `null`, "\xff",
		} {
			f.Add(byte(i), []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, which byte, body []byte) {
		typ := outside[int(which)%len(outside)]
		if schemas.Validate(typ, body) != nil {
			return
		}
		payload, err := decode(typ, body)
		if err != nil {
			return
		}
		again, err := events.Encode(payload)
		if err != nil {
			t.Fatalf("%s: %v: %q", typ, err, body)
		}
		if err := schemas.Validate(typ, again); err != nil {
			t.Fatalf("%s: written again: %v: %q became %q", typ, err, body, again)
		}
		second, err := decode(typ, again)
		if err != nil {
			t.Fatalf("%s: written again: %v: %q became %q", typ, err, body, again)
		}
		third, err := events.Encode(second)
		if err != nil || !bytes.Equal(again, third) {
			t.Fatalf("%s: %q became %q, and then %q, %v", typ, body, again, third, err)
		}
	})
}

// outsideTypes are those that outsiders may state, in the order of their names.
func outsideTypes() (types []events.Type) {
	for _, t := range events.Types() {
		if t.FromOutside() {
			types = append(types, t)
		}
	}
	return types
}
