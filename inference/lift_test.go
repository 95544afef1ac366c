package inference

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestLift: an answer whose prompt's ids are taken out of its text says the same
// as one that is read whole.
func TestLift(t *testing.T) {
	long := strings.TrimSuffix(strings.Repeat("151935,7,", 200), ",")
	choice := `"choices":[{"message":{"content":"a \"prompt_token_ids\":[1] b"},"token_ids":[1,2]%s}]`
	for name, c := range map[string]struct {
		text   string
		lifted bool
	}{
		"first":            {`{"prompt_token_ids":[` + long + `],` + fmt.Sprintf(choice, "") + `}`, true},
		"last, with space": {`{` + fmt.Sprintf(choice, "") + `, "prompt_token_ids" : [` + long + `] }`, true},
		"in the choice":    {`{` + fmt.Sprintf(choice, `,"prompt_token_ids":[`+long+`]`) + `}`, true},
		"in both": {`{"prompt_token_ids":[` + long + `],` +
			fmt.Sprintf(choice, `,"prompt_token_ids":[`+long+`,5]`) + `}`, true},
		"elsewhere": {`{"other":{"prompt_token_ids":[` + long + `]},` + fmt.Sprintf(choice, "") + `}`, true},
		"twice": {`{"prompt_token_ids":[` + long + `],"prompt_token_ids":[3],` +
			fmt.Sprintf(choice, "") + `}`, true},
		"short":      {`{"prompt_token_ids":[1,2],` + fmt.Sprintf(choice, "") + `}`, false},
		"null":       {`{"prompt_token_ids":null,` + fmt.Sprintf(choice, "") + `}`, false},
		"spaced":     {`{"prompt_token_ids":[1, ` + long + `],` + fmt.Sprintf(choice, "") + `}`, true},
		"negative":   {`{"prompt_token_ids":[-1,` + long + `],` + fmt.Sprintf(choice, "") + `}`, true},
		"texts":      {`{"prompt_token_ids":["]",` + long + `],` + fmt.Sprintf(choice, "") + `}`, false},
		"no end":     {`{"prompt_token_ids":[` + long, false},
		"cut":        {`{"prompt_token_ids":[` + long + `],"choices":[`, true},
		"only a key": {`{"prompt_token_ids"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			var want, got Response
			wantErr := json.Unmarshal([]byte(c.text), &want)
			rest, list := lift([]byte(c.text))
			err := decode([]byte(c.text), rest, list, &got)
			got.lifted = nil
			if (list != nil) != c.lifted || (err == nil) != (wantErr == nil) ||
				err == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("lifted %t; %v, want %v; %d ids of the prompt, want %d", list != nil, err, wantErr,
					len(got.PromptTokenIDs), len(want.PromptTokenIDs))
			}
		})
	}
}
