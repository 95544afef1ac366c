package inference

import (
	"testing"
	"time"
)

// TestTimeOfParts: of an answer in parts the sampling counts, and not the rests between.
func TestTimeOfParts(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p parts
	var last *Response
	for i, took := range []time.Duration{3 * time.Second, 4 * time.Second} {
		last = &Response{sent: began.Add(time.Duration(i) * time.Minute), took: took, beside: &beside{}, Choices: choices{{TokenIDs: tokenIDs{1}}}}
		last.Choices[0].Logprobs.Content = []sampledEntry{{Logprob: new(logprob)}}
		if err := p.add(last); err != nil {
			t.Fatal(err)
		}
	}
	whole := p.response([]int32{7}, last)
	turn, _, err := whole.Turn(0, 0, whole.Sent())
	if err != nil || turn.SamplingTime() != 7*time.Second || !turn.StartedAt.Equal(began) {
		t.Errorf("%s from %s on, %v", turn.SamplingTime(), turn.StartedAt, err)
	}
}
