package wire

import (
	"reflect"
	"strings"
	"testing"
)

// TestCall: a call crosses as it is, whatever its bytes, and what is none is refused.
func TestCall(t *testing.T) {
	for _, call := range []Call{
		{Dir: "/app", Argv: []string{"sh", "", "\xff\n"}, Env: []string{"A=1", "B="}, WallMillis: 5},
		{Dir: "", Argv: []string{"true"}, Env: []string{}},
	} {
		sizes, body, err := call.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := sizes.Decode(body); err != nil || !reflect.DeepEqual(got, call) {
			t.Errorf("%+v became %+v, %v", call, got, err)
		}
	}
	if _, _, err := (Call{Argv: []string{"a\x00b"}}).Encode(); err == nil {
		t.Error("a zero byte in a command was taken")
	}
	if _, _, err := (Call{Argv: []string{strings.Repeat("a", MaxCall)}}).Encode(); err == nil {
		t.Error("too long a command was taken")
	}
	for body, sizes := range map[string]CallSizes{
		"":                   {Argv: 1},
		"/app\x00":           {Argv: 0},
		"/app\x00sh":         {Argv: 1},
		"/app\x00\x00":       {Argv: 1},
		"/app\x00sh\x00":     {Argv: 1 << 62, Env: 1 << 62},
		"/app\x00sh2\x00":    {Argv: -1, Env: 2},
		"/app\x00sh3\x00":    {Argv: 2},
		"/app\x00a\x00b\x00": {Argv: 1, Env: 2},
	} {
		t.Run(body, func(t *testing.T) {
			if call, err := sizes.Decode([]byte(body)); err == nil {
				t.Errorf("%q with %+v is a call: %+v", body, sizes, call)
			}
		})
	}
}
