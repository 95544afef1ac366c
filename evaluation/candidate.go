package evaluation

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// bounds are what a file of log-probabilities may hold. A number takes some 20 bytes of
// its line and 8 in memory.
type bounds struct {
	line   int // bytes
	tokens int // of all rollouts
	lines  int
}

var candidateBounds = bounds{line: 64 << 20, tokens: 1 << 26, lines: maxAttempts}

// ReadCandidate reads a candidate's log-probabilities of recorded rollouts: JSON Lines of
//
//	{"rollout": "g000001-0", "logprobs": [-0.01, -1.5]}
//
// with one natural logarithm for each sampled token of the rollout, in order. Other keys are
// for the reader's own use, and empty lines do not count. An error names the line. A file
// holds at most 2²⁶ numbers.
func ReadCandidate(r io.Reader) (map[string][]float64, error) {
	return readCandidate(r, candidateBounds)
}

func readCandidate(r io.Reader, b bounds) (map[string][]float64, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, b.line)
	logprobs, at := map[string][]float64{}, map[string]int{}
	line, tokens := 0, 0
	for lines.Scan() {
		if line++; line > b.lines {
			return nil, fmt.Errorf("line %d: at most %d lines are read", line, b.lines)
		}
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		rollout, values, err := candidateLine(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if first, ok := at[rollout]; ok {
			return nil, fmt.Errorf("line %d: rollout %q is already in line %d", line, rollout, first)
		}
		if tokens += len(values); tokens > b.tokens {
			return nil, fmt.Errorf("line %d: more than %d log-probabilities in all: give fewer rollouts at a time",
				line, b.tokens)
		}
		logprobs[rollout], at[rollout] = values, line
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d is longer than %d bytes", line+1, b.line)
	} else if err != nil {
		return nil, fmt.Errorf("after line %d: %w", line, err)
	}
	return logprobs, nil
}

func candidateLine(text []byte) (rollout string, logprobs []float64, err error) {
	if !utf8.Valid(text) {
		return "", nil, errors.New("it is not UTF-8")
	}
	var fields struct {
		Rollout  *string    `json:"rollout"`
		Logprobs *[]logprob `json:"logprobs"`
	}
	if err := json.Unmarshal(text, &fields); err != nil {
		return "", nil, fmt.Errorf("want {\"rollout\": NAME, \"logprobs\": [NUMBER, …]}: %w", err)
	}
	switch {
	case fields.Rollout == nil || *fields.Rollout == "":
		return "", nil, errors.New(`it has no "rollout"`)
	case fields.Logprobs == nil:
		return "", nil, fmt.Errorf(`rollout %q has no "logprobs"`, *fields.Rollout)
	}
	logprobs = make([]float64, len(*fields.Logprobs))
	for i, p := range *fields.Logprobs {
		if logprobs[i] = float64(p); p > roundedUp {
			return "", nil, fmt.Errorf("rollout %q, token %d: %g is not the logarithm of a probability",
				*fields.Rollout, i, p)
		}
	}
	return *fields.Rollout, logprobs, nil
}

// logprob is a number that null is not, which a float64 would take for 0: the probability 1.
type logprob float64

func (p *logprob) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return errors.New("null is not a log-probability")
	}
	return json.Unmarshal(text, (*float64)(p))
}
