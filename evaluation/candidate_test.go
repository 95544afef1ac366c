package evaluation

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadCandidate(t *testing.T) {
	const file = `{"rollout": "g000001-0", "logprobs": [-0.5, -1e-3, 0], "model": "b"}

{"rollout":"g000001-1","logprobs":[]}` + "\r\n"
	got, err := ReadCandidate(strings.NewReader(file))
	want := map[string][]float64{"g000001-0": {-0.5, -1e-3, 0}, "g000001-1": {}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestRefusedLines(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"{\"rollout\":\"a\",\"logprobs\":[0]}\n{\"rollout\":\"a\",\"logprobs\":[0]}",
			`line 2: rollout "a" is already in line 1`},
		{"\n\n[]", `line 3: want {"rollout": NAME, "logprobs": [NUMBER, …]}`},
		{`{"rollout":"a"}`, `line 1: rollout "a" has no "logprobs"`},
		{`{"rollout":"a","logprobs":null}`, `has no "logprobs"`},
		{`{"rollout":"a","log_probs":[0]}`, `has no "logprobs"`},
		{`{"logprobs":[0]}`, `line 1: it has no "rollout"`},
		{`{"rollout":"","logprobs":[0]}`, `it has no "rollout"`},
		{`{"rollout":"a","logprobs":[-1,null]}`, "null is not a log-probability"},
		{`{"rollout":"a","logprobs":[-1,"x"]}`, "line 1: want"},
		{`{"rollout":"a","logprobs":[-Infinity]}`, "line 1: want"},
		{`{"rollout":"a","logprobs":[-1e999]}`, "line 1: want"},
		{`{"rollout":"a","logprobs":[-1,0.3]}`,
			`line 1: rollout "a", token 1: 0.3 is not the logarithm of a probability`},
		{`{"rollout":"a","logprobs":[0]} {"rollout":"b","logprobs":[0]}`, "line 1: want"},
		{"{\"rollout\":\"\xff\",\"logprobs\":[0]}", "line 1: it is not UTF-8"},
		{`{"rollout":"a","logprobs":[0,0,0,0,0,0]}`, "line 1: more than 5 log-probabilities in all"},
		{`{"rollout":"a","logprobs":[0,0,0]}` + "\n" + `{"rollout":"b","logprobs":[0,0,0]}`,
			"line 2: more than 5 log-probabilities"},
		{"\n" + strings.Repeat(" ", 100) + "\n", "line 2 is longer than 80 bytes"},
		{"\n\n\n\n\n", "line 5: at most 4 lines"},
	} {
		_, err := readCandidate(strings.NewReader(c.file), bounds{line: 80, tokens: 5, lines: 4})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: want %q, got %v", c.file, c.want, err)
		}
	}
	broken := io.MultiReader(strings.NewReader("{\"rollout\":\"a\",\"logprobs\":[0]}\n"),
		iotest.ErrReader(errors.New("the disk is gone")))
	if _, err := ReadCandidate(broken); err == nil || !strings.Contains(err.Error(), "after line 1: the disk is gone") {
		t.Errorf("a broken reader: %v", err)
	}
}

// FuzzReadCandidate: whatever is read is within the bounds, and written
// down it is read as the same.
func FuzzReadCandidate(f *testing.F) {
	for _, seed := range []string{"", "{\"rollout\":\"a\",\"logprobs\":[-1,0]}\n{\"rollout\":\"b\",\"logprobs\":[]}\n",
		`{"rollout":"a","logprobs":[null]}`,
		`{"rollout":"\u0000","logprobs":[-1e308]}`, `{"rollout":"a","rollout":"b","logprobs":[1e-4]}`,
		"\xef\xbb\xbf{}", `{"rollout":["a"]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		got, err := readCandidate(strings.NewReader(string(file)), bounds{line: 1 << 12, tokens: 64, lines: 8})
		if err != nil {
			if !strings.Contains(err.Error(), "line ") {
				t.Fatalf("an error without its line: %v", err)
			}
			return
		}
		var b strings.Builder
		total := 0
		for rollout, logprobs := range got {
			total += len(logprobs)
			for _, p := range logprobs {
				if !(p <= roundedUp) || rollout == "" {
					t.Fatalf("%q has a log-probability of %g", rollout, p)
				}
			}
			if err := json.NewEncoder(&b).Encode(map[string]any{"rollout": rollout, "logprobs": logprobs}); err != nil {
				t.Fatal(err)
			}
		}
		if total > 64 || len(got) > 8 {
			t.Fatalf("%d tokens of %d rollouts", total, len(got))
		}
		again, err := ReadCandidate(strings.NewReader(b.String()))
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%v became %v (%v)", got, again, err)
		}
	})
}
