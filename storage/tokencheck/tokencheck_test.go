package tokencheck_test

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// TestTokens holds the rules to the cases that the Python client is held to, too.
func TestTokens(t *testing.T) {
	text, err := os.ReadFile("testdata/tokens.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name     string
		IDs      json.RawMessage
		Logprobs []any
		Rounded  []float32
		Wrong    string
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) < 20 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			logprobs := make([]float32, len(c.Logprobs))
			for i, l := range c.Logprobs {
				switch l := l.(type) {
				case float64:
					logprobs[i] = float32(l)
				case string: // JSON has no such numbers
					v, err := strconv.ParseFloat(l, 32)
					if err != nil {
						t.Fatal(err)
					}
					logprobs[i] = float32(v)
				}
			}
			ids, err := tokencheck.ReadIDs(c.IDs)
			if err == nil {
				tokencheck.Round(logprobs)
				err = tokencheck.Sampled(ids, logprobs)
			}
			if (err == nil) != (c.Wrong == "") || err != nil && !strings.Contains(err.Error(), c.Wrong) {
				t.Errorf("%v, want %q", err, c.Wrong)
			}
			if c.Rounded != nil && !slices.Equal(logprobs, c.Rounded) {
				t.Errorf("rounded to %v", logprobs)
			}
		})
	}
	if err := tokencheck.Scored([]float32{-500, 0}); err != nil {
		t.Errorf("an unlikely token that was given: %v", err)
	}
	for _, none := range []float32{-9999, -1e30, 0.5} {
		if err := tokencheck.Scored([]float32{-1, none}); err == nil || !strings.Contains(err.Error(), "token 1") {
			t.Errorf("%g of a given token: %v", none, err)
		}
	}
}
