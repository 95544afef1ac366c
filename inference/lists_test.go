package inference

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
)

// TestTokenIDs reads lists of ids as the decoder does, and refuses what it refuses.
func TestTokenIDs(t *testing.T) {
	for _, text := range []string{
		`null`, `[]`, `[0]`, `[1,2,3]`, `[2147483647]`, `[2147483648]`, `[99999999999]`, `[-1,4]`, `[1.5]`, `[1e3]`,
		`[ 1, 2 ]`, "[1,\n2]", `[null,7]`, `["1"]`, `{}`, `7`, `[[1]]`, `[151935,0,12]`, `[true]`,
	} {
		t.Run(text, func(t *testing.T) {
			var want []int32
			wantErr := json.Unmarshal([]byte(text), &want)
			if text == `[null,7]` { // which the decoder takes for 0
				wantErr = errors.New("token 0 is null")
			}
			var got tokenIDs
			err := json.Unmarshal([]byte(text), &got)
			if (err == nil) != (wantErr == nil) ||
				err == nil && (!slices.Equal(got, want) || (got == nil) != (want == nil)) {
				t.Errorf("%v, %v; not %v, %v", got, err, want, wantErr)
			}
		})
	}
}
