package events

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/tokencheck"
)

// TeacherScored says how likely a teacher, or a reference model, finds the tokens of a scored
// rollout. One that takes hints says it of the tokens of their spans, each with its hint in the
// context. The ordinal is the teacher's name, so each states it once.
type TeacherScored struct {
	Teacher string `json:"teacher" jsonschema:"pattern=^[A-Za-z0-9_-]{1\\,64}$"`
	// Trajectory is the SHA-256 of the file whose tokens these are.
	Trajectory string `json:"trajectory" jsonschema:"pattern=^[0-9a-f]{64}$"`
	// Tokens are those of the trajectory's samples, or of the hints' spans, together, and Logprobs
	// holds one value for each, see PackLogprobs; absent where Failed says why there are none.
	Tokens   int          `json:"tokens" jsonschema:"minimum=0"`
	Logprobs *storage.Ref `json:"logprobs,omitempty"`
	Failed   string       `json:"failed,omitempty" jsonschema:"maxLength=1000"`
	// Model is the name that the server answered to, and Version the version of its weights, as
	// far as anybody says one.
	Model   string `json:"model,omitempty" jsonschema:"maxLength=256"`
	Version string `json:"version,omitempty" jsonschema:"maxLength=128"`
}

// Bounds of what one hinter states of a rollout.
const (
	MaxHints = 16
	// MaxHintText bounds the text of a hint, in bytes.
	MaxHintText = 4 << 10
	// MaxHintTokens bounds the tokens that are inserted.
	MaxHintTokens = 1 << 10
)

// RolloutHinted says what a hinter, a judge, a person or a program, finds bad in a scored rollout:
// spans of sampled tokens, each with a hint for the model. A teacher that takes its hints scores
// each span with the hint in the context. The ordinal is the hinter's name, so each speaks once;
// without hints it says that it found nothing.
type RolloutHinted struct {
	By string `json:"by" jsonschema:"pattern=^[A-Za-z0-9_-]{1\\,64}$"`
	// Trajectory is the SHA-256 of the file whose tokens the spans are of.
	Trajectory string `json:"trajectory" jsonschema:"pattern=^[0-9a-f]{64}$"`
	// Hints are in the order of their spans, which do not overlap.
	Hints []Hint `json:"hints" jsonschema:"maxItems=16"`
}

// Hint is a text about some tokens of one turn.
type Hint struct {
	Sample int    `json:"sample" jsonschema:"minimum=0"` // among the samples of the trajectory
	Start  int    `json:"start" jsonschema:"minimum=0"`  // of the span, among the sample's tokens
	Length int    `json:"length" jsonschema:"minimum=1"`
	Text   string `json:"text" jsonschema:"minLength=1,maxLength=4096"`
	// Tokens are what is inserted for the text, with what the model's chat format has around it;
	// without them the teacher's server turns the text into tokens.
	Tokens []int32 `json:"tokens,omitempty" jsonschema:"maxItems=1024"`
	// At is the token of the sample before which the hint is inserted; without it the first
	// sampled one of the span's turn.
	At *int `json:"at,omitempty" jsonschema:"minimum=0"`
}

// Rows gives the hints as the rows of the trajectory's samples have them. Its error says which does
// not fit: hints come from outside.
func (r RolloutHinted) Rows(samples []storage.Sample) ([][]storage.Hint, error) {
	if len(r.Hints) > MaxHints {
		return nil, fmt.Errorf("%d hints (limit %d)", len(r.Hints), MaxHints)
	}
	rows := make([][]storage.Hint, len(samples))
	sample, end := 0, 0
	for i, h := range r.Hints {
		if h.Sample < 0 || h.Sample >= len(samples) {
			return nil, fmt.Errorf("hint %d: sample %d: the rollout has %d samples, counted from 0", i, h.Sample,
				len(samples))
		}
		row, err := h.row(&samples[h.Sample])
		if err != nil {
			return nil, fmt.Errorf("hint %d: %w", i, err)
		}
		if h.Sample < sample || h.Sample == sample && h.Start < end {
			return nil, fmt.Errorf("hint %d: its span begins before the end of the one before it: state hints in the order of their spans, which do not overlap", i)
		}
		sample, end = h.Sample, h.Start+h.Length
		rows[h.Sample] = append(rows[h.Sample], row)
	}
	return rows, nil
}

// row checks a hint against its sample.
func (h Hint) row(s *storage.Sample) (storage.Hint, error) {
	n := len(s.Tokens)
	switch {
	case h.Start < 0 || h.Length < 1 || h.Start >= n || h.Length > n-h.Start:
		return storage.Hint{}, fmt.Errorf("%d tokens from token %d: sample %d has %d tokens", h.Length, h.Start,
			h.Sample, n)
	case h.Text == "" || len(h.Text) > MaxHintText:
		return storage.Hint{}, fmt.Errorf("a text of %d bytes: want 1 to %d", len(h.Text), MaxHintText)
	case len(h.Tokens) > MaxHintTokens:
		return storage.Hint{}, fmt.Errorf("%d tokens to insert (limit %d)", len(h.Tokens), MaxHintTokens)
	}
	for _, id := range h.Tokens {
		if id < 0 {
			return storage.Hint{}, fmt.Errorf("token id %d", id)
		}
	}
	for _, t := range s.Turns {
		if h.Start < int(t.Start) || h.Start+h.Length > int(t.Start+t.Length) {
			continue
		}
		at := t.Start
		if h.At != nil {
			if *h.At < 0 || *h.At > h.Start {
				return storage.Hint{}, fmt.Errorf("at %d: want 0 to the span's first token, %d", *h.At, h.Start)
			}
			at = int32(*h.At)
		}
		return storage.Hint{Turn: t.Turn, Start: int32(h.Start), Length: int32(h.Length), At: at,
			Text: h.Text, Tokens: h.Tokens}, nil
	}
	return storage.Hint{}, fmt.Errorf("tokens %d to %d of sample %d are not all sampled in one turn", h.Start,
		h.Start+h.Length-1, h.Sample)
}

// Lengths are the tokens of each hint's span: a teacher that takes the hints states one
// log-probability for each.
func (r RolloutHinted) Lengths() (lengths []int, tokens int) {
	for _, h := range r.Hints {
		lengths = append(lengths, h.Length)
		tokens += h.Length
	}
	return lengths, tokens
}

// bytesOfLogprob is the size of one log-probability of PackLogprobs.
const bytesOfLogprob = 4

// PackLogprobs lays out the log-probabilities of all tokens of a trajectory's samples, sample after
// sample, as little-endian float32. The first token of a sample has nothing before it, and 0.
func PackLogprobs(samples [][]float32) []byte {
	var data []byte
	for _, values := range samples {
		for _, v := range values {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	return data
}

// UnpackLogprobs reads what PackLogprobs made of samples of these lengths. Its error says what is
// no log-probability: the data may come from outside.
func UnpackLogprobs(data []byte, lengths []int) ([][]float32, error) {
	samples, err := unpack(data, lengths, "sample")
	if err != nil {
		return nil, err
	}
	for i, values := range samples {
		if len(values) > 0 && values[0] != 0 {
			return nil, fmt.Errorf("token 0 of sample %d has the log-probability %g: want 0 for the first token", i,
				values[0])
		}
	}
	return samples, nil
}

// UnpackSpans reads what PackLogprobs made of the spans of hints: of their first tokens it
// says as much as of others.
func UnpackSpans(data []byte, lengths []int) ([][]float32, error) {
	return unpack(data, lengths, "span")
}

func unpack(data []byte, lengths []int, list string) ([][]float32, error) {
	tokens := 0
	for _, n := range lengths {
		tokens += n
	}
	if len(data) != bytesOfLogprob*tokens {
		return nil, fmt.Errorf("%d bytes of log-probabilities for %d tokens, which take %d", len(data),
			tokens, bytesOfLogprob*tokens)
	}
	lists := make([][]float32, len(lengths))
	for i, n := range lengths {
		lists[i] = make([]float32, n)
		for k := range lists[i] {
			lists[i][k] = math.Float32frombits(binary.LittleEndian.Uint32(data))
			data = data[bytesOfLogprob:]
		}
		if err := tokencheck.Scored(lists[i]); err != nil {
			return nil, fmt.Errorf("%s %d: %w", list, i, err)
		}
	}
	return lists, nil
}

// SpanLogprobs lays what a teacher says of hints, in their order, out over the tokens of a sample.
// It is NaN where no hint is, and where nothing is said.
func SpanLogprobs(tokens int, hints []storage.Hint, lists [][]float32) []float32 {
	values := make([]float32, tokens)
	for i := range values {
		values[i] = float32(math.NaN())
	}
	for i, list := range lists[:min(len(lists), len(hints))] {
		copy(values[hints[i].Start:], list)
	}
	return values
}
