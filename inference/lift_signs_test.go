package inference

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestLiftedSigns: a prompt with an id below 0 is refused, also a long one, and one beside a
// long list of another place.
func TestLiftedSigns(t *testing.T) {
	long := strings.TrimSuffix(strings.Repeat("151935,7,", 200), ",")
	for name, c := range map[string]struct {
		whole, choice string // the lists of both places
		wrong         bool
	}{
		"long":                             {long, "", false},
		"short, below 0":                   {"1,-2", "", true},
		"long, below 0":                    {long + ",-2", "", true},
		"long, begins below 0":             {"-2," + long, "", true},
		"below 0 beside a long":            {"1,-2", long, true},
		"of the choice":                    {"", long, false},
		"of the choice, below 0":           {"", long + ",-2", true},
		"long beside one that is not used": {long, "1,-2", false},
	} {
		t.Run(name, func(t *testing.T) {
			text := `{"choices":[{"message":{"content":"a"},"token_ids":[1],"logprobs":{"content":[{"logprob":-1}]}`
			if c.choice != "" {
				text += `,"prompt_token_ids":[` + c.choice + `]`
			}
			text += `}]`
			if c.whole != "" { // behind the choice, whose list is the one that is taken out
				text += `,"prompt_token_ids":[` + c.whole + `]`
			}
			text += `}`
			if !json.Valid([]byte(text)) {
				t.Fatal(text)
			}
			var r Response
			rest, list := lift([]byte(text))
			if err := decode([]byte(text), rest, list, &r); err != nil {
				t.Fatal(err)
			}
			_, prompt, err := r.Turn(0, 0, time.Now())
			if wrong := errors.Is(err, ErrTokens); wrong != c.wrong || !wrong && (err != nil || len(prompt) != 400) {
				t.Errorf("%d ids: %v", len(prompt), err)
			}
		})
	}
}
