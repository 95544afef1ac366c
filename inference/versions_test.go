package inference

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
)

// answered is an answer of four sampled tokens with further fields of the answer, of its
// choice and of its meta_info.
func answered(t testing.TB, whole, choice, meta string) *Response {
	t.Helper()
	body := `{"prompt_token_ids":[1,2],"choices":[{"finish_reason":"stop","message":{"content":"a"},"token_ids":[3,4,5,6],` +
		`"logprobs":{"content":[{"logprob":-1},{"logprob":-1},{"logprob":-1},{"logprob":-1}]}` + choice +
		`,"meta_info":{"x":1` + meta + `}}]` + whole + `}`
	r := &Response{}
	if err := json.Unmarshal([]byte(body), r); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return r
}

// TestWeightVersions: the versions of a turn are those that the server reports for its tokens. What
// does not fit the tokens is unknown, and the turn keeps its tokens.
func TestWeightVersions(t *testing.T) {
	spans := func(list ...string) string { return `,"weight_versions":[` + strings.Join(list, ",") + `]` }
	span := func(version string, start, end int) string {
		return fmt.Sprintf(`{"version":%s,"start":%d,"end":%d}`, version, start, end)
	}
	two := []events.VersionSpan{{Version: 7, Start: 0, End: 1}, {Version: 8, Start: 1, End: 4}}
	var many []string
	for i := range events.MaxVersionSpans + 1 {
		many = append(many, span(`"7"`, i, i+1))
	}
	for name, c := range map[string]struct {
		whole, choice, meta string
		version             int64
		spans               []events.VersionSpan
		lacks               bool
	}{
		"nothing":   {"", "", "", 5, nil, false},
		"vLLM, two": {"", spans(span(`"7"`, 0, 1), span(`"8"`, 1, 4)), "", 7, two, false},
		"SGLang, two": {"", "", `,"weight_version":"8"` + spans(span(`"7"`, 0, 1), span(`"8"`, 1, 4)), 7,
			two, false},
		"one":     {"", spans(span(`"7"`, 0, 4)), "", 7, nil, false},
		"numbers": {"", spans(span(`7`, 0, 1), span(`8`, 1, 4)), "", 7, two, false},
		"neighbours of one": {"", spans(span(`"7"`, 0, 1), span(`"8"`, 1, 2), span(`"8"`, 2, 4)), "", 7, two,
			false},
		"back again": {"", spans(span(`"8"`, 0, 1), span(`"7"`, 1, 2), span(`"8"`, 2, 4)), "", 7,
			[]events.VersionSpan{{Version: 8, Start: 0, End: 1}, {Version: 7, Start: 1, End: 2},
				{Version: 8, Start: 2, End: 4}}, false},
		"empty, and a label": {`,"weight_version":3`, spans(), "", 3, nil, false},
		"null, and a label": {`,"metadata":{"weight_version":"3"}`,
			`,"weight_versions":null`, "", 3, nil, false},
		"spans before the label": {"", "", `,"weight_version":"9"` + spans(span(`"7"`, 0, 4)), 7, nil, false},
		"no number":              {"", spans(span(`"default"`, 0, 4)), "", 5, nil, false},
		"no number, and a label": {`,"weight_version":3`, spans(span(`"default"`, 0, 4)), "", 3, nil, false},
		"no number at first": {"", spans(span(`"default"`, 0, 1), span(`"8"`, 1, 4)), "", -1,
			[]events.VersionSpan{{Version: -1, Start: 0, End: 1}, {Version: 8, Start: 1, End: 4}}, false},
		"below 0": {"", spans(span(`-8`, 0, 1), span(`"8"`, 1, 4)), "", -1,
			[]events.VersionSpan{{Version: -1, Start: 0, End: 1}, {Version: 8, Start: 1, End: 4}}, false},
		"a gap": {`,"weight_version":3`,
			spans(span(`"7"`, 0, 1), span(`"8"`, 2, 4)), "", -1, nil, true},
		"an overlap": {`,"weight_version":3`,
			spans(span(`"7"`, 0, 2), span(`"8"`, 1, 4)), "", -1, nil, true},
		"a late beginning":         {"", spans(span(`"7"`, 1, 4)), "", -1, nil, true},
		"an early end":             {"", spans(span(`"7"`, 0, 3)), "", -1, nil, true},
		"beyond the tokens":        {"", spans(span(`"7"`, 0, 5)), "", -1, nil, true},
		"far beyond":               {"", spans(span(`"7"`, 0, 1<<62)), "", -1, nil, true},
		"out of order":             {"", spans(span(`"8"`, 1, 4), span(`"7"`, 0, 1)), "", -1, nil, true},
		"backwards":                {"", spans(span(`"7"`, 0, 4), span(`"8"`, 4, 2)), "", -1, nil, true},
		"an empty span":            {"", spans(span(`"7"`, 0, 4), span(`"8"`, 4, 4)), "", -1, nil, true},
		"more than the bound":      {"", spans(many...), "", -1, nil, true},
		"no list":                  {"", `,"weight_versions":"7"`, "", -1, nil, true},
		"an object":                {"", `,"weight_versions":{"version":"7","start":0,"end":4}`, "", -1, nil, true},
		"no spans in it":           {"", `,"weight_versions":[7,8]`, "", -1, nil, true},
		"null in it":               {"", spans(`null`), "", -1, nil, true},
		"a span without an end":    {"", spans(`{"version":"7","start":0}`), "", -1, nil, true},
		"a span with half a token": {"", spans(`{"version":"7","start":0,"end":3.5}`), "", -1, nil, true},
	} {
		turn, _, err := answered(t, c.whole, c.choice, c.meta).Turn(0, 5, time.Now())
		if err != nil || turn.TextOnly || len(turn.TokenIDs) != 4 {
			t.Errorf("%s: the turn %+v: %v", name, turn, err)
		}
		if lacks := slices.Contains(turn.Lacks, events.LackVersions); turn.PolicyVersion != c.version ||
			!reflect.DeepEqual(turn.VersionSpans, c.spans) || lacks != c.lacks {
			t.Errorf("%s: version %d of %+v, lacks %v; want %d of %+v", name, turn.PolicyVersion, turn.VersionSpans,
				turn.Lacks, c.version, c.spans)
		}
	}
}

// TestVersionsOfText: a turn without tokens has no spans of them, and the oldest of its versions.
func TestVersionsOfText(t *testing.T) {
	r := &Response{}
	body := `{"choices":[{"finish_reason":"stop","message":{"content":"a"},"weight_versions":[{"version":"7","start":0,"end":9},{"version":"8","start":9,"end":20}]}]}`
	if err := json.Unmarshal([]byte(body), r); err != nil {
		t.Fatal(err)
	}
	turn, _, err := r.Turn(0, 5, time.Now())
	if err != nil || !turn.TextOnly || turn.PolicyVersion != 7 || turn.VersionSpans != nil {
		t.Errorf("the turn %+v: %v", turn, err)
	}
	if version, known := r.Version(); version != 7 || !known {
		t.Errorf("the answer is of version %d (%v)", version, known)
	}
}

// FuzzWeightVersions: whatever a server reports, a turn has of each token one
// version, or none is known.
func FuzzWeightVersions(f *testing.F) {
	f.Add(`[{"version":"7","start":0,"end":2},{"version":"8","start":2,"end":4}]`)
	f.Add(`[{"version":"7","start":0,"end":-1},{"version":8,"start":-1,"end":4}]`)
	f.Add(`[{"version":"default","start":0,"end":4},null,{}]`)
	f.Add(`{"version":9223372036854775807}`)
	f.Fuzz(func(t *testing.T, said string) {
		if !json.Valid([]byte(said)) {
			return
		}
		turn, _, err := answered(t, "", `,"weight_versions":`+said, "").Turn(0, 5, time.Now())
		if err != nil || len(turn.TokenIDs) != 4 {
			t.Fatalf("the turn is lost: %v", err)
		}
		if err := events.CheckVersionSpans(turn.VersionSpans, 4); err != nil || len(turn.VersionSpans) == 1 ||
			turn.PolicyVersion < -1 {
			t.Errorf("version %d of %+v: %v", turn.PolicyVersion, turn.VersionSpans, err)
		}
		for i, s := range turn.VersionSpans {
			if s.Version < turn.PolicyVersion || i > 0 && s.Version == turn.VersionSpans[i-1].Version {
				t.Errorf("version %d of %+v", turn.PolicyVersion, turn.VersionSpans)
			}
		}
	})
}
